import type { ClientHttp2Session, ClientHttp2Stream, OutgoingHttpHeaders } from 'node:http2';
import { create, toBinary } from '@bufbuild/protobuf';
import { AgentMessageSchema } from '@cloudless/api';
import { envelope } from './raw-http.js';

/** Encodes a Hello of a node as a message of a gRPC stream. */
export function encodeHello(nodeId: string): Buffer {
  const message = create(AgentMessageSchema, { message: { case: 'hello', value: { nodeId } } });
  return envelope(Buffer.from(toBinary(AgentMessageSchema, message)));
}

/**
 * Opens a gRPC stream of the RPC Session. The client reads no response yet.
 * @param headers - Further headers, or others instead. Default: none.
 */
export function requestSession(
  connection: ClientHttp2Session,
  headers: OutgoingHttpHeaders = {},
): ClientHttp2Stream {
  return connection.request({
    ':method': 'POST',
    ':path': '/cloudless.api.CoordinatorService/Session',
    'content-type': 'application/grpc+proto',
    te: 'trailers',
    ...headers,
  });
}

/** Counts the iterations of the event loop, until {@link stop}. */
export class LoopIterations {
  /** Number of iterations so far. */
  count = 0;
  private next = setImmediate(() => this.countOne());

  stop(): void {
    clearImmediate(this.next);
  }

  private countOne(): void {
    this.count += 1;
    this.next = setImmediate(() => this.countOne());
  }
}
