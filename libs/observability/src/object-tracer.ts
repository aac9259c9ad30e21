import {
  ROOT_CONTEXT,
  SpanStatusCode,
  context,
  trace,
  type Context,
  type Span,
  type Tracer as OpenTelemetryTracer,
} from '@opentelemetry/api';
import {
  errorMessageOf,
  type Clock,
  type OpenSpan,
  type SpanAttributes,
  type Tracer,
} from '@cloudless/base';

/** Work on an object within this time after a request belongs to the trace of the request. */
const MARK_MS = 60_000;
/** Limit of marked objects; the oldest mark is removed first. */
const MAX_MARKS = 1_000;

/**
 * Adds the work on an object to the trace of the request that changed the object: the request marks
 * the object, and later work follows the mark.
 */
export class ObjectTracer implements Tracer {
  private readonly marks = new Map<string, { readonly context: Context; readonly atMs: number }>();

  constructor(
    private readonly tracer: OpenTelemetryTracer,
    private readonly clock: Clock,
  ) {}

  run<Result>(
    name: string,
    attributes: SpanAttributes,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const active = context.active();
    // A control loop that a call has woken keeps the context of the call after the call has ended.
    return isRecording(trace.getSpan(active))
      ? this.runInSpan(active, name, attributes, work)
      : work();
  }

  mark(key: string): void {
    const active = context.active();
    const span = trace.getSpan(active);
    if (!isRecording(span)) return;
    this.marks.delete(key);
    this.marks.set(key, {
      context: trace.setSpanContext(ROOT_CONTEXT, span.spanContext()),
      atMs: this.clock.now(),
    });
    const [oldest] = this.marks.keys();
    if (this.marks.size > MAX_MARKS && oldest !== undefined) this.marks.delete(oldest);
  }

  follow<Result>(
    key: string,
    name: string,
    attributes: SpanAttributes,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const markedContext = this.findMark(key);
    return markedContext === undefined
      ? context.with(ROOT_CONTEXT, work)
      : this.runInSpan(markedContext, name, attributes, work);
  }

  begin(key: string, name: string, attributes: SpanAttributes): OpenSpan | undefined {
    const markedContext = this.findMark(key);
    if (markedContext === undefined) return undefined;
    const span = this.tracer.startSpan(name, { attributes }, markedContext);
    return { end: (failure) => endSpan(span, failure) };
  }

  private findMark(key: string): Context | undefined {
    const mark = this.marks.get(key);
    if (mark === undefined || this.clock.now() - mark.atMs <= MARK_MS) return mark?.context;
    this.marks.delete(key);
    return undefined;
  }

  private async runInSpan<Result>(
    parent: Context,
    name: string,
    attributes: SpanAttributes,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const span = this.tracer.startSpan(name, { attributes }, parent);
    try {
      const result = await context.with(trace.setSpan(parent, span), work);
      endSpan(span);
      return result;
    } catch (reason) {
      endSpan(span, reason);
      throw reason;
    }
  }
}

/** Returns true when a span exists and has not ended. */
export function isRecording(span: Span | undefined): span is Span {
  return span?.isRecording() === true;
}

/** Ends a span. Has no effect on a span that has ended. */
export function endSpan(span: Span, failure?: unknown): void {
  if (!span.isRecording()) return;
  if (failure !== undefined)
    span.setStatus({ code: SpanStatusCode.ERROR, message: errorMessageOf(failure) });
  span.end();
}
