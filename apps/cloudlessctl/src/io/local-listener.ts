import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import type { LocalConnection, LocalListener } from './io.js';

/** Accepts TCP connections on 127.0.0.1, see `CliIo.listen`. */
export function listenLocally(
  port: number,
  onConnection: (connection: LocalConnection) => void,
): Promise<LocalListener> {
  return new Promise((resolve, reject) => {
    const listener = new SocketListener(onConnection);
    listener.server.once('error', reject);
    listener.server.listen(port, '127.0.0.1', () => resolve(listener));
  });
}

class SocketListener implements LocalListener {
  readonly server: Server;
  private readonly open = new Set<Socket>();

  constructor(onConnection: (connection: LocalConnection) => void) {
    this.server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.open.add(socket);
      socket.once('close', () => this.open.delete(socket));
      onConnection(new SocketConnection(socket));
    });
  }

  get port(): number {
    const address = this.server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  close(): void {
    this.server.close();
    for (const socket of this.open) socket.destroy();
  }
}

class SocketConnection implements LocalConnection {
  readonly received: AsyncIterable<Buffer>;
  private readonly closing = new AbortController();

  constructor(private readonly socket: Socket) {
    socket.on('error', () => undefined); // the pending read or write throws the error
    socket.once('close', () => this.closing.abort());
    this.received = socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  }

  get closed(): AbortSignal {
    return this.closing.signal;
  }

  write(data: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.socket.write(data, (reason) =>
        reason === null || reason === undefined ? resolve() : reject(reason),
      );
    });
  }

  endSending(): void {
    this.socket.end();
  }

  resetConnection(): void {
    this.socket.resetAndDestroy();
  }
}
