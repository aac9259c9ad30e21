import type { SpanAttributes } from './tracer.js';

/** The part that a traced program has in a call: the caller, or the program that is called. */
export type SpanKind = 'client' | 'server';

/** A span of a connection or request that was chosen to be traced. */
export interface SampledSpan {
  /**
   * The span as the parent of what follows, in the format of the header `traceparent`: 55 characters.
   * @see W3C Trace Context, section 3.2
   */
  readonly traceparent: string;
  /**
   * Ends the span; a second call changes nothing.
   * @param failure - Why the connection or request failed; undefined: it did not fail.
   */
  end(attributes: SpanAttributes, failure?: string): void;
}

/** Begins spans for connections and requests of others, most of which are not traced. */
export interface SampledTracer {
  /**
   * @param parent - Span of the caller, in the format of the header `traceparent`. Its flag `sampled`
   *   decides whether the connection or request is traced. Undefined or malformed: a share is traced.
   * @returns Undefined: not traced, also when the tracer has reached its bound of spans.
   */
  begin(name: string, kind: SpanKind, parent?: string): SampledSpan | undefined;
}

/** Traces nothing. */
export const noSampledTracer: SampledTracer = { begin: () => undefined };
