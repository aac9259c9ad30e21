import {
  Code,
  ConnectError,
  type Interceptor,
  type StreamRequest,
  type UnaryRequest,
} from '@connectrpc/connect';
import {
  ROOT_CONTEXT,
  SpanKind,
  context,
  propagation,
  trace,
  type Context,
  type Span,
  type Tracer,
} from '@opentelemetry/api';
import { formatCode } from '@cloudless/api';
import { endSpan } from './object-tracer.js';
import { onStreamEnd } from './on-stream-end.js';

/**
 * RPCs of agents that stay open while the node is connected, or that are made all the time. Their
 * spans would have no information.
 */
const UNTRACED = new Set(['Session', 'Heartbeat', 'RenewLease', 'Tunnel']);

/** Continues the caller's trace, or starts a new trace, and runs the handler in this trace. */
export function createServerTracing(tracer: Tracer): Interceptor {
  return (next) => async (request) => {
    if (UNTRACED.has(request.method.name) || !request.service.typeName.startsWith('cloudless.'))
      return next(request);
    const caller = propagation.extract(ROOT_CONTEXT, request.header, {
      keys: (header) => [...header.keys()],
      get: (header, key) => header.get(key) ?? undefined,
    });
    const span = startSpan(tracer, request, SpanKind.SERVER, caller);
    return runInSpan(span, trace.setSpan(caller, span), () => next(request));
  };
}

/** Sends the current trace, or a new trace, to the server. */
export function createClientTracing(tracer: Tracer): Interceptor {
  return (next) => async (request) => {
    if (UNTRACED.has(request.method.name)) return next(request);
    const active = context.active();
    const span = startSpan(tracer, request, SpanKind.CLIENT, active);
    const contextWithSpan = trace.setSpan(active, span);
    propagation.inject(contextWithSpan, request.header, {
      set: (header, key, value) => header.set(key, value),
    });
    return runInSpan(span, contextWithSpan, () => next(request));
  };
}

type AnyRequest = UnaryRequest | StreamRequest;

/** Starts a span whose attributes follow the OpenTelemetry semantic conventions, "RPC". */
function startSpan(
  tracer: Tracer,
  { service, method }: AnyRequest,
  kind: SpanKind,
  parent: Context,
): Span {
  const attributes = {
    'rpc.system': 'connect_rpc',
    'rpc.service': service.typeName,
    'rpc.method': method.name,
  };
  return tracer.startSpan(`${service.typeName}/${method.name}`, { kind, attributes }, parent);
}

/**
 * Makes a call in a span and ends the span with the call. The span of a stream ends when the last
 * message was read or the reader has left the loop.
 */
async function runInSpan<Response extends { readonly stream: boolean; readonly message: unknown }>(
  span: Span,
  contextWithSpan: Context,
  call: () => Promise<Response>,
): Promise<Response> {
  try {
    const response = await context.with(contextWithSpan, call);
    if (!response.stream) {
      endSpan(span);
      return response;
    }
    const message = onStreamEnd(
      response.message as AsyncIterable<unknown>,
      (failure) => (failure === undefined ? endSpan(span) : endWithFailure(span, failure.reason)),
      (next) => context.with(contextWithSpan, next),
    );
    return { ...response, message };
  } catch (reason) {
    endWithFailure(span, reason);
    throw reason;
  }
}

function endWithFailure(span: Span, reason: unknown): void {
  const { code } = ConnectError.from(reason);
  span.setAttribute('rpc.connect_rpc.error_code', formatCode(code));
  endSpan(span, code === Code.Canceled ? undefined : reason);
}
