import { noTracer, type Clock, type Log, type LogFields, type Tracer } from '@cloudless/base';
import type { Interceptor } from '@connectrpc/connect';

/** Needs of {@link startTracing}. */
export interface TracingOptions {
  /**
   * Base address of an OTLP receiver that takes HTTP with protobuf, as in `http://127.0.0.1:4318`;
   * undefined: nothing is traced.
   */
  readonly endpoint: string | undefined;
  /** What this program is: `cloudless-coordinator`. */
  readonly service: string;
  readonly version: string;
  /** Which one of its kind it is, as a node id. */
  readonly instance: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Traces of one process. */
export interface Tracing {
  /** What libraries report to. */
  readonly tracer: Tracer;
  /** Continues the caller's trace in each call that is served; first of all interceptors. */
  readonly serverInterceptor: Interceptor;
  /** Tells whoever is called which trace it belongs to. */
  readonly clientInterceptor: Interceptor;
  /** The trace that runs now, for log lines. */
  readonly logFields: () => LogFields;
  /** Sends what waits, for 2 s at most. */
  close(): Promise<void>;
}

const passThrough: Interceptor = (next) => next;

/** Traces nothing and costs nothing. */
export const noTracing: Tracing = {
  tracer: noTracer,
  serverInterceptor: passThrough,
  clientInterceptor: passThrough,
  logFields: () => ({}),
  close: () => Promise.resolve(),
};

/**
 * Starts to send traces. What sends them is loaded only when there is an endpoint. Whatever becomes
 * of them is logged and nothing else: calls never wait for it, and what waits to be sent is
 * bounded.
 */
export async function startTracing(options: TracingOptions): Promise<Tracing> {
  if (options.endpoint === undefined) return noTracing;
  const { startExport } = await import('./trace-export.js');
  return startExport({ ...options, endpoint: options.endpoint });
}
