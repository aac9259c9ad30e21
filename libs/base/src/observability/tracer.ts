/** Short values that describe a span. Never a secret. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean>>;

/** A span that has begun and not ended. */
export interface OpenSpan {
  /**
   * Ends the span; a second call changes nothing.
   * @param failure - The error, if the work failed.
   */
  end(failure?: unknown): void;
}

/**
 * Tracing port. Work that a request causes runs later and in other places, so a trace is tied to an
 * object: a request {@link Tracer.mark}s the object's key, and later work on the key continues the
 * trace.
 */
export interface Tracer {
  /** Runs `work` as a span of the current trace, if there is one. */
  run<Result>(
    name: string,
    attributes: SpanAttributes,
    work: () => Promise<Result>,
  ): Promise<Result>;
  /**
   * Ties the current trace to `key`, so that later work on the key continues the trace. Does
   * nothing without a current trace.
   */
  mark(key: string): void;
  /**
   * Runs `work` as a span of the trace that recently {@link Tracer.mark}ed the key, if there is
   * one.
   */
  follow<Result>(
    key: string,
    name: string,
    attributes: SpanAttributes,
    work: () => Promise<Result>,
  ): Promise<Result>;
  /** Begins a span of the trace that recently marked the key; undefined when there is none. */
  begin(key: string, name: string, attributes: SpanAttributes): OpenSpan | undefined;
}

/** Records nothing. For tests, and for programs without a trace receiver. */
export const noTracer: Tracer = {
  run: (_name, _attributes, work) => work(),
  mark: () => undefined,
  follow: (_key, _name, _attributes, work) => work(),
  begin: () => undefined,
};
