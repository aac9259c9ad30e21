import { create, toBinary } from '@bufbuild/protobuf';
import { AgentMessageSchema } from '@cloudless/api';
import { envelope } from './raw-http.js';

/** Encodes a Hello of a node as a message of a gRPC stream. */
export function encodeHello(nodeId: string): Buffer {
  const message = create(AgentMessageSchema, { message: { case: 'hello', value: { nodeId } } });
  return envelope(Buffer.from(toBinary(AgentMessageSchema, message)));
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
