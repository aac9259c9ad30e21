import type { ClientHttp2Session } from 'node:http2';
import { createGrpcTransport, type GrpcTransportOptions } from '@connectrpc/connect-node';

export type CallInterceptors = NonNullable<GrpcTransportOptions['interceptors']>;

/**
 * Creates a gRPC transport over an open HTTP/2 session. The caller opens and closes the session.
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
