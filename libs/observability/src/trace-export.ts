import { DiagLogLevel, ROOT_CONTEXT, context, diag, propagation, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import {
  BatchSpanProcessor,
  NodeTracerProvider,
  type TracerConfig,
} from '@opentelemetry/sdk-trace-node';
import { Throttle, sleep } from '@cloudless/base';
import { ObjectTracer, isRecording } from './object-tracer.js';
import { ShareTracer } from './share-tracer.js';
import { createClientTracing, createServerTracing } from './trace-interceptors.js';
import type { Tracing, TracingOptions } from './trace-model.js';

/** Limit of spans that wait to be sent (about 2 MB); further spans are dropped. */
const MAX_QUEUE = 2_048;
/** Maximum number of spans in one request. */
const BATCH_SIZE = 512;
/** Delay before queued spans are sent. */
const EXPORT_INTERVAL_MS = 1_000;
/** Timeout of one request; the spans of a slower request are lost. */
const EXPORT_TIMEOUT_MS = 5_000;
/** Timeout of the last export at close. Spans that are not sent by then are lost. */
const CLOSE_TIMEOUT_MS = 2_000;

/**
 * Implements `startTracing` with the OpenTelemetry SDK. Only one instance per process at a
 * time.
 */
export function startExport(options: TracingOptions & { readonly endpoint: string }): Tracing {
  const { endpoint, clock, log } = options;
  const failures = new Throttle({ clock, burst: 1, everyMs: 60_000 });
  const logFailure = (message: string): void => {
    const throttled = failures.take('export');
    if (throttled.passes)
      log.warn('traces not sent', {
        endpoint,
        reason: message,
        repeated: throttled.suppressed?.count ?? 0,
      });
  };
  const ignoreMessage = (): void => undefined;
  diag.setLogger(
    {
      error: logFailure,
      warn: logFailure,
      info: ignoreMessage,
      debug: ignoreMessage,
      verbose: ignoreMessage,
    },
    DiagLogLevel.WARN,
  );
  const exporter = new OTLPTraceExporter({
    url: `${endpoint.replace(/\/+$/, '')}/v1/traces`,
    timeoutMillis: EXPORT_TIMEOUT_MS,
  });
  const provider = new NodeTracerProvider({
    resource: createResource(options),
    spanProcessors: [
      new BatchSpanProcessor(exporter, {
        maxQueueSize: MAX_QUEUE,
        maxExportBatchSize: BATCH_SIZE,
        scheduledDelayMillis: EXPORT_INTERVAL_MS,
        exportTimeoutMillis: EXPORT_TIMEOUT_MS,
      }),
    ],
  });
  provider.register(); // W3C trace context, and context propagation through promises
  const tracer = provider.getTracer('cloudless', options.version);
  return {
    tracer: new ObjectTracer(tracer, clock),
    createSampledTracer: (share, random) => new ShareTracer(tracer, share, { clock, random }),
    serverInterceptor: createServerTracing(tracer),
    clientInterceptor: createClientTracing(tracer),
    getLogFields: () => {
      const span = trace.getSpan(context.active());
      return isRecording(span) ? { traceId: span.spanContext().traceId } : {};
    },
    close: () =>
      // The shutdown may log: these lines must not belong to the trace of the caller.
      context.with(ROOT_CONTEXT, async () => {
        const finished = new AbortController();
        const timeout = sleep(clock, CLOSE_TIMEOUT_MS, finished.signal).catch(ignoreMessage);
        await Promise.race([
          provider.shutdown().catch((reason: unknown) => logFailure(String(reason))),
          timeout,
        ]);
        finished.abort();
        for (const part of [trace, context, propagation, diag]) part.disable();
      }),
  };
}

/**
 * Creates the attributes of the process for every span (OpenTelemetry semantic conventions,
 * "Service").
 */
function createResource({
  service,
  version,
  instance,
}: TracingOptions): NonNullable<TracerConfig['resource']> {
  const attributes = {
    'service.name': service,
    'service.version': version,
    'service.instance.id': instance,
  };
  const resource: NonNullable<TracerConfig['resource']> = {
    attributes,
    merge: (other) =>
      other === null
        ? resource
        : { ...resource, attributes: { ...attributes, ...other.attributes } },
    getRawAttributes: () => Object.entries(attributes),
  };
  return resource;
}
