/** Short values that say what a span is about. Never a secret. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean>>;

/** A span that has begun. */
export interface OpenSpan {
  /** Ends it; a second time changes nothing. @param failure - What went wrong, if something did. */
  end(failure?: unknown): void;
}

/**
 * Where a library says what it does for whom. What a request sets off happens later and elsewhere,
 * so a trace is tied to the object it is about: a request {@link Tracer.mark}s it, and what is done
 * to the object soon after belongs to that trace.
 */
export interface Tracer {
  /** Runs `work` as a part of the trace that runs now, if one does. */
  run<Result>(
    name: string,
    attributes: SpanAttributes,
    work: () => Promise<Result>,
  ): Promise<Result>;
  /**
   * What is done to `key` from now on was set off by the trace that runs now. Without one nothing
   * changes.
   */
  mark(key: string): void;
  /** Runs `work` as a part of the trace that {@link Tracer.mark}ed the key lately, if one did. */
  follow<Result>(
    key: string,
    name: string,
    attributes: SpanAttributes,
    work: () => Promise<Result>,
  ): Promise<Result>;
  /** Begins a span of the trace that marked the key lately; undefined when none did. */
  begin(key: string, name: string, attributes: SpanAttributes): OpenSpan | undefined;
}

/** Traces nothing: for tests and for programs without a receiver of traces. */
export const noTracer: Tracer = {
  run: (_name, _attributes, work) => work(),
  mark: () => undefined,
  follow: (_key, _name, _attributes, work) => work(),
  begin: () => undefined,
};
