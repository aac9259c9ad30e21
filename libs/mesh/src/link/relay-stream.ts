import { Duplex } from 'node:stream';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { NodeNetworkClient, RelayNetworkRequestSchema } from '@cloudless/api';

type Request = MessageInitShape<typeof RelayNetworkRequestSchema>;

/** Largest number of bytes in one message of a relayed stream. */
const MAX_MESSAGE_BYTES = 64 * 1024;

/**
 * The bytes of a connection to the proxy of another node, through the coordinator. A TLS connection
 * runs within, so that the coordinator cannot read them.
 */
export class RelayStream extends Duplex {
  private readonly stop = new AbortController();
  private waiting: { chunk: Buffer; done: () => void } | undefined;
  private hasEnded = false;
  private wakeWriter: (() => void) | undefined;
  private wakeReader: (() => void) | undefined;

  constructor(client: Pick<NodeNetworkClient, 'relayNetwork'>, fromNodeId: string, nodeId: string) {
    super({ highWaterMark: MAX_MESSAGE_BYTES });
    const requests = this.requests({
      message: { case: 'target', value: { fromNodeId, nodeId } },
    });
    void this.receive(client, requests);
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.waiting = { chunk, done };
    this.wakeWriter?.();
  }

  override _final(done: () => void): void {
    this.hasEnded = true;
    this.wakeWriter?.();
    done();
  }

  override _read(): void {
    this.wakeReader?.();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.hasEnded = true;
    this.stop.abort();
    this.wakeWriter?.();
    this.wakeReader?.();
    done(error);
  }

  private async *requests(first: Request): AsyncGenerator<Request> {
    yield first;
    for (;;) {
      const { waiting } = this;
      if (waiting === undefined) {
        if (this.hasEnded) return;
        await new Promise<void>((resolve) => (this.wakeWriter = resolve));
        continue;
      }
      this.waiting = undefined;
      for (let start = 0; start < waiting.chunk.length; start += MAX_MESSAGE_BYTES) {
        const value = waiting.chunk.subarray(start, start + MAX_MESSAGE_BYTES);
        yield { message: { case: 'data', value } };
      }
      waiting.done();
    }
  }

  private async receive(
    client: Pick<NodeNetworkClient, 'relayNetwork'>,
    requests: AsyncIterable<Request>,
  ): Promise<void> {
    try {
      for await (const { data } of client.relayNetwork(requests, { signal: this.stop.signal })) {
        if (this.destroyed) return;
        if (!this.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength)))
          await new Promise<void>((resolve) => (this.wakeReader = resolve));
      }
      this.push(null);
    } catch (reason) {
      this.destroy(reason instanceof Error ? reason : new Error('the relay failed'));
    }
  }
}
