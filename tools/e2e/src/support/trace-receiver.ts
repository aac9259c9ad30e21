import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** An HTTP server that receives OTLP traces. */
export class TraceReceiver {
  private bodies = Buffer.alloc(0);
  private readonly waiters = new Set<() => void>();
  private readonly server: Server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      this.bodies = Buffer.concat([this.bodies, ...chunks]);
      response.writeHead(200, { 'Content-Type': 'application/x-protobuf' }).end();
      for (const wake of this.waiters) wake();
    });
  });

  /** All requests that were received, one after the other, as protobuf. */
  get received(): Buffer {
    return this.bodies;
  }

  /** Listens at a free port, and returns the base address. */
  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** Resolves when all given texts were received. */
  async waitForTexts(...texts: readonly (Buffer | string)[]): Promise<void> {
    while (!texts.every((bytes) => this.bodies.includes(bytes))) {
      await new Promise<void>((resolve) => this.waiters.add(resolve));
    }
  }

  close(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}
