import type { ClientHttp2Session } from 'node:http2';
import { createGrpcTransport, type GrpcTransportOptions } from '@connectrpc/connect-node';

/** Interceptors of calls; the first is the outermost. */
export type CallInterceptors = NonNullable<GrpcTransportOptions['interceptors']>;

/**
 * Creates a gRPC transport over an open HTTP/2 session. The caller opens and closes the session.
 * @param address - Base URL of the server, such as `http://127.0.0.1:8080`.
 * @param readMaxBytes - Limit of one message from the server, in bytes.
 */
export function createGrpcTransportOver(
  session: ClientHttp2Session,
  address: string,
  readMaxBytes: number,
  interceptors: CallInterceptors = [],
): ReturnType<typeof createGrpcTransport> {
  return createGrpcTransport({
    baseUrl: address,
    readMaxBytes,
    interceptors,
    sessionManager: {
      authority: new URL(address).origin,
      request: async (method, path, headers, options) =>
        session.request({ ...headers, ':method': method, ':path': path }, options),
      notifyResponseByteRead: () => undefined,
    },
  });
}
