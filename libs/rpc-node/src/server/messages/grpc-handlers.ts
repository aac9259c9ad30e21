import type { Interceptor } from '@connectrpc/connect';
import type {
  UniversalHandler,
  UniversalServerRequest,
  UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import { parseTimeout } from '@connectrpc/connect/protocol-grpc';
import { serveStream } from './grpc-streams.js';
import { serveUnary } from './grpc-unary.js';
import type { Implementations } from './implementations.js';

/** What Connect applies to every call, too. */
export interface GrpcHandlerSettings {
  /**
   * The first is the outermost. It must give each call a signal that is aborted when the call ends,
   * as `CallLifetimes.interceptor` does.
   */
  readonly interceptors: readonly Interceptor[];
  /** Longest deadline that a client may set, in milliseconds. */
  readonly maxTimeoutMs: number;
}

type Serve = (request: UniversalServerRequest) => Promise<UniversalServerResponse>;

/**
 * Replaces the handlers of unary calls and of streams in both directions by handlers that serve
 * plain gRPC themselves: binary messages whose requests are not compressed; streams only without a
 * deadline of the client. Every message passes ten asynchronous generators in Connect, which are
 * compiled to promises, and none here. All other requests go to Connect.
 * @param handlers - Handlers of Connect.
 */
export function createGrpcHandlers(
  handlers: readonly UniversalHandler[],
  implementations: Implementations,
  settings: GrpcHandlerSettings,
): readonly UniversalHandler[] {
  return handlers.map((handler) => {
    const serve = createServe(handler, implementations, settings);
    if (serve === undefined) return handler;
    const { protocolNames, allowedMethods, supportedContentType, requestPath, service, method } =
      handler;
    return Object.assign(serve, {
      ...{ protocolNames, allowedMethods, supportedContentType, requestPath, service, method },
    });
  });
}

function createServe(
  handler: UniversalHandler,
  implementations: Implementations,
  { interceptors, maxTimeoutMs }: GrpcHandlerSettings,
): Serve | undefined {
  const spec = implementations.findUnary(handler.method);
  if (spec?.kind === 'unary')
    return (request) => {
      // Connect refuses an invalid deadline.
      const { timeoutMs, error } = parseTimeout(request.header.get(TIMEOUT_HEADER), maxTimeoutMs);
      return isPlainGrpc(request) && error === undefined
        ? serveUnary({ handler, spec, interceptors, timeoutMs }, request)
        : handler(request);
    };
  const implement = implementations.findStream(handler.method);
  if (implement === undefined) return undefined;
  return (request) =>
    isPlainGrpc(request) && !request.header.has(TIMEOUT_HEADER)
      ? serveStream(handler, implement, interceptors, request)
      : handler(request);
}

const TIMEOUT_HEADER = 'grpc-timeout';

function isPlainGrpc({ method, header }: UniversalServerRequest): boolean {
  const type = header.get('content-type');
  const encoding = header.get('grpc-encoding');
  return (
    method === 'POST' &&
    (type === 'application/grpc' || type === 'application/grpc+proto') &&
    (encoding === null || encoding === 'identity')
  );
}
