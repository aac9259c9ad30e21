import {
  Code,
  ConnectError,
  type Interceptor,
  type StreamRequest,
  type UnaryRequest,
} from '@connectrpc/connect';
import { formatCode, parseTraceId, readErrorDetails } from '@cloudless/api';
import {
  DURATION_BUCKETS,
  Throttle,
  noMeter,
  type Clock,
  type Log,
  type Meter,
} from '@cloudless/base';
import { onStreamEnd } from './on-stream-end.js';

/** Arguments of {@link createRpcObserver}. */
export interface RpcObserverOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Returns the client's address; default: no address in log lines. */
  readonly getClientAddress?: (request: UnaryRequest | StreamRequest) => string | undefined;
  /**
   * Returns the name of the principal that makes a call. Default: `anonymous@loopback`, the
   * principal of every call in a cluster without TLS.
   */
  readonly getPrincipal?: (request: UnaryRequest | StreamRequest) => string | undefined;
}

/** Principal of a call without an identity. */
const ANONYMOUS = 'anonymous@loopback';
/**
 * Warnings about one method and one code that are logged without delay; after these, one warning
 * each `everyMs`.
 */
const WARNINGS = { burst: 5, everyMs: 10_000 };

/**
 * Creates a server interceptor that counts, times and logs calls: one line for each call at debug,
 * failed calls at warn. Must be the outermost interceptor after tracing.
 */
export function createRpcObserver({
  clock,
  log,
  meter = noMeter,
  getClientAddress,
  getPrincipal,
}: RpcObserverOptions): Interceptor {
  const warnings = new Throttle({ clock, ...WARNINGS });
  const calls = meter.counter({
    name: 'cloudless_rpc_calls_total',
    help: 'Calls that ended, by method, code (ok, or as the API spells errors) and reason of the error (empty when there is none).',
    labels: ['method', 'code', 'reason'],
  });
  const duration = meter.histogram({
    name: 'cloudless_rpc_duration_seconds',
    help: 'Time of unary calls, by method.',
    labels: ['method'],
    buckets: DURATION_BUCKETS,
  });
  const openCounts = new Map<string, number>();
  const openCalls = meter.gauge({
    name: 'cloudless_rpc_open_calls',
    help: 'Calls that are being answered, by method; those of the Watch methods are the watch clients.',
    labels: ['method'],
  });
  meter.onExpose(() => {
    for (const [method, count] of openCounts) openCalls.set(count, { method });
  });
  const recordEnd = (
    request: UnaryRequest | StreamRequest,
    startedMs: number,
    failure: { readonly reason: unknown } | undefined,
  ): void => {
    const method = request.method.name;
    openCounts.set(method, (openCounts.get(method) ?? 1) - 1);
    const error = failure === undefined ? undefined : ConnectError.from(failure.reason);
    const code = error === undefined ? 'ok' : formatCode(error.code);
    const reason = error === undefined ? undefined : readErrorDetails(error).reason;
    calls.add(1, { method, code, reason: reason ?? '' });
    const durationMs = Math.round((clock.now() - startedMs) * 1_000) / 1_000;
    if (!request.stream) duration.observe(durationMs / 1_000, { method });
    const fields = {
      rpc: `${request.service.typeName}/${method}`,
      code,
      durationMs,
      principal: getPrincipal?.(request) ?? ANONYMOUS,
      ...describeCall(request, getClientAddress?.(request)),
    };
    if (error === undefined || code === formatCode(Code.Canceled))
      return log.debug('call ended', fields);
    const throttled = warnings.take(`${method} ${code}`);
    const failureFields = { ...fields, reason: error?.rawMessage, errorReason: reason };
    if (throttled.passes)
      log.warn('call failed', { ...failureFields, repeated: throttled.suppressed?.count });
    else log.debug('call failed', failureFields);
  };
  return (next) => async (request) => {
    const method = request.method.name;
    const startedMs = clock.now();
    openCounts.set(method, (openCounts.get(method) ?? 0) + 1);
    try {
      const response = await next(request);
      if (!response.stream) {
        recordEnd(request, startedMs, undefined);
        return response;
      }
      const message = onStreamEnd(response.message, (failure) =>
        recordEnd(request, startedMs, failure),
      );
      return { ...response, message };
    } catch (reason) {
      recordEnd(request, startedMs, { reason });
      throw reason;
    }
  };
}

/**
 * Returns log fields with address, request id and trace id, as far as they are known.
 */
function describeCall(request: UnaryRequest | StreamRequest, address: string | undefined) {
  const traceId = parseTraceId(request.header);
  const message: unknown = request.stream ? {} : request.message;
  const requestId =
    typeof message === 'object' && message !== null && 'requestId' in message
      ? message.requestId
      : '';
  return {
    ...(address === undefined || address === '' ? {} : { address }),
    ...(requestId === '' ? {} : { requestId }),
    ...(traceId === '' ? {} : { traceId }),
  };
}
