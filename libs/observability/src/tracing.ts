import type { Interceptor } from '@connectrpc/connect';
import { noSampledTracer, noTracer } from '@cloudless/base';
import type { Tracing, TracingOptions } from './trace-model.js';

const passThrough: Interceptor = (next) => next;

/** Tracing that records nothing. */
export const noTracing: Tracing = {
  tracer: noTracer,
  createSampledTracer: () => noSampledTracer,
  serverInterceptor: passThrough,
  clientInterceptor: passThrough,
  getLogFields: () => ({}),
  close: () => Promise.resolve(),
};

/**
 * Starts to export traces. Loads the SDK only when there is an endpoint. Export failures are only
 * logged: calls never wait for the export, and the queue is bounded.
 */
export async function startTracing(options: TracingOptions): Promise<Tracing> {
  if (options.endpoint === undefined) return noTracing;
  const { startExport } = await import('./trace-export.js');
  return startExport({ ...options, endpoint: options.endpoint });
}
