import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { SpdyParser } from '../exec/spdy.js';

/** Response to the upgrade of the connection. */
const UPGRADE_RESPONSE = [
  'HTTP/1.1 101 Switching Protocols',
  'Connection: Upgrade',
  'Upgrade: SPDY/3.1',
  'X-Stream-Protocol-Version: v4.channel.k8s.io',
  '',
  '',
].join('\r\n');

/**
 * The stream ids of a command with input and without a terminal, in the order in which a client
 * opens them.
 */
export const STREAMS = { error: 1, stdin: 3, stdout: 5, stderr: 7 } as const;

/** Encodes the final status of a command, which the runtime sends on the error stream. */
export function encodeEndStatus(exitCode: number): Uint8Array {
  const causes = [{ reason: 'ExitCode', message: String(exitCode) }];
  const status = { status: 'Failure', reason: 'NonZeroExitCode', details: { causes } };
  return new TextEncoder().encode(JSON.stringify(exitCode === 0 ? { status: 'Success' } : status));
}

/**
 * Streaming server of a container runtime for one command. The test writes frames to `peer`. The
 * server counts the bytes of the received input and discards them.
 */
export class FakeStreamServer {
  private readonly server: Server = createServer();
  private readonly sockets = new Set<Socket>();
  private readonly parser = new SpdyParser();
  private readonly waiting = new Set<() => void>();
  private connection: Socket | undefined;
  /** Bytes of input that the server has received. */
  inputBytes = 0;
  private isInputEnded = false;

  /** URL that the runtime would return from `Exec`. */
  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/exec/token`;
  }

  /** The server side of the connection. Throws before a client has connected. */
  get peer(): Socket {
    if (this.connection === undefined) throw new Error('no client has connected');
    return this.connection;
  }

  async listen(): Promise<void> {
    this.server.on('connection', (socket: Socket) => this.sockets.add(socket));
    this.server.on('upgrade', (_request, socket, head: Buffer) =>
      this.accept(socket as Socket, head),
    );
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
  }

  /**
   * Resolves when this many bytes of input were received, or without `bytes` when the input ended.
   */
  async waitForInput(bytes?: number): Promise<void> {
    const hasArrived = (): boolean =>
      bytes === undefined ? this.isInputEnded : this.inputBytes >= bytes;
    while (!hasArrived()) await new Promise<void>((resolve) => this.waiting.add(resolve));
  }

  async dispose(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  private accept(socket: Socket, head: Buffer): void {
    this.connection = socket;
    socket.on('error', () => undefined);
    socket.write(UPGRADE_RESPONSE);
    socket.on('data', (chunk: Buffer) => this.onData(chunk));
    this.onData(head);
  }

  private onData(chunk: Buffer): void {
    for (const frame of this.parser.feed(chunk)) {
      if (!('streamId' in frame) || frame.streamId !== STREAMS.stdin) continue;
      if (frame.kind === 'data') this.inputBytes += frame.data.length;
      if (frame.kind === 'end') this.isInputEnded = true;
    }
    for (const resolve of this.waiting) resolve();
    this.waiting.clear();
  }
}
