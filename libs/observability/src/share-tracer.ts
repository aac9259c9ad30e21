import {
  ROOT_CONTEXT,
  SpanKind as OpenTelemetryKind,
  SpanStatusCode,
  TraceFlags,
  propagation,
  trace,
  type Context,
  type Span,
  type Tracer as OpenTelemetryTracer,
} from '@opentelemetry/api';
import {
  SecondLimit,
  type Clock,
  type Random,
  type SampledSpan,
  type SampledTracer,
  type SpanAttributes,
  type SpanKind,
} from '@cloudless/base';

/**
 * Largest number of spans in each second. Clients of an HTTP ingress may ask for a trace of each
 * request.
 */
const MAX_PER_SECOND = 100;

const KINDS: Readonly<Record<SpanKind, OpenTelemetryKind>> = {
  client: OpenTelemetryKind.CLIENT,
  server: OpenTelemetryKind.SERVER,
};

/** Traces what the caller traces, and a share of what has no caller with a trace. */
export class ShareTracer implements SampledTracer {
  private readonly rate = new SecondLimit(MAX_PER_SECOND);

  /** @param share - Share of the spans without a parent that are traced, 0 to 1. */
  constructor(
    private readonly tracer: OpenTelemetryTracer,
    private readonly share: number,
    private readonly deps: { readonly clock: Clock; readonly random: Random },
  ) {}

  begin(name: string, kind: SpanKind, parent?: string): SampledSpan | undefined {
    const caller = parent === undefined ? undefined : readParent(parent);
    if (!this.isTraced(caller) || !this.rate.take(this.deps.clock.now())) return undefined;
    const span = this.tracer.startSpan(name, { kind: KINDS[kind] }, caller ?? ROOT_CONTEXT);
    return new OpenSampledSpan(span);
  }

  private isTraced(caller: Context | undefined): boolean {
    const flags = caller && trace.getSpanContext(caller)?.traceFlags;
    if (flags !== undefined) return (flags & TraceFlags.SAMPLED) !== 0;
    return this.share > 0 && this.deps.random.next() < this.share;
  }
}

class OpenSampledSpan implements SampledSpan {
  readonly traceparent: string;

  constructor(private readonly span: Span) {
    const { traceId, spanId } = span.spanContext();
    this.traceparent = `00-${traceId}-${spanId}-01`;
  }

  end(attributes: SpanAttributes, failure?: string): void {
    if (!this.span.isRecording()) return;
    this.span.setAttributes(attributes);
    if (failure !== undefined)
      this.span.setStatus({ code: SpanStatusCode.ERROR, message: failure });
    this.span.end();
  }
}

/** Returns a context with the span of the caller; undefined for a malformed `traceparent`. */
function readParent(traceparent: string): Context | undefined {
  const context = propagation.extract(ROOT_CONTEXT, { traceparent });
  return trace.getSpanContext(context) === undefined ? undefined : context;
}
