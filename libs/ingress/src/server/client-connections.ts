import type { Duplex } from 'node:stream';

/** Open connections of clients at one listener. */
export class ClientConnections {
  private readonly open = new Set<Duplex>();
  private readonly waiting: (() => void)[] = [];

  constructor(private readonly max: number) {}

  get size(): number {
    return this.open.size;
  }

  /** Notes a connection. Returns false, and ends the connection, when there are too many. */
  add(socket: Duplex): boolean {
    if (this.open.size >= this.max) {
      socket.on('error', () => undefined).destroy();
      return false;
    }
    this.open.add(socket);
    socket.once('close', () => {
      this.open.delete(socket);
      if (this.open.size === 0) for (const resolve of this.waiting.splice(0)) resolve();
    });
    return true;
  }

  /** Resolves when no connection is open. */
  empty(): Promise<void> {
    if (this.open.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  destroyAll(): void {
    for (const socket of [...this.open]) socket.destroy();
  }
}
