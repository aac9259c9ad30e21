import type { ClientHttp2Session } from 'node:http2';
import { createGrpcTransport, type GrpcTransportOptions } from '@connectrpc/connect-node';

/** What is put around each call. */
export type CallInterceptors = NonNullable<GrpcTransportOptions['interceptors']>;

/** A gRPC transport over a connection that we opened ourselves, and whose end is ours too. */
export function grpcOver(
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
