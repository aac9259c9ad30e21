import type { Interceptor } from '@connectrpc/connect';
import type { Clock, Log, LogFields, Random, SampledTracer, Tracer } from '@cloudless/base';

/** The program whose traces are exported, and their receiver. */
export interface TracingOptions {
  /**
   * Base URL of an OTLP receiver for HTTP with protobuf, such as `http://127.0.0.1:4318`.
   * Undefined: no tracing.
   */
  readonly endpoint: string | undefined;
  /** Name of the program, such as `cloudless-coordinator`. */
  readonly service: string;
  readonly version: string;
  /** Unique name of this instance, such as a node id. */
  readonly instance: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Tracer and interceptors of one process. */
export interface Tracing {
  /** Tracer that libraries report to. */
  readonly tracer: Tracer;
  /**
   * Creates a tracer for connections and requests of others.
   * @param share - Share of connections and requests without a trace of their caller that is
   *   traced, 0 to 1.
   */
  readonly createSampledTracer: (share: number, random: Random) => SampledTracer;
  /** Continues the caller's trace in each served call. Must be the first interceptor. */
  readonly serverInterceptor: Interceptor;
  /** Sends the current trace to the server. */
  readonly clientInterceptor: Interceptor;
  /** Returns the trace id of the current span as a field for log lines; empty without a span. */
  readonly getLogFields: () => LogFields;
  /** Sends the remaining spans. Resolves within 2 s; spans that are not sent by then are lost. */
  close(): Promise<void>;
}
