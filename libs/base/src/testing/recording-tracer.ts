import type { SampledSpan, SampledTracer, SpanKind } from '../observability/sampled-tracer.js';
import type { SpanAttributes } from '../observability/tracer.js';

/** A span that a {@link RecordingTracer} has begun. */
export interface RecordedSpan {
  readonly name: string;
  readonly kind: SpanKind;
  readonly parent: string | undefined;
  readonly traceparent: string;
  /** Undefined while the span is open. */
  readonly attributes?: SpanAttributes;
  readonly failure?: string;
}

/** A tracer for tests that traces everything and records the spans in memory. */
export class RecordingTracer implements SampledTracer {
  readonly spans: RecordedSpan[] = [];

  begin(name: string, kind: SpanKind, parent?: string): SampledSpan {
    const index = this.spans.length;
    const traceparent = `span-${index + 1}`;
    const span: RecordedSpan = { name, kind, parent, traceparent };
    this.spans.push(span);
    return {
      traceparent,
      end: (attributes, failure) => {
        const ended = failure === undefined ? { attributes } : { attributes, failure };
        this.spans[index] = { ...span, ...ended };
      },
    };
  }
}
