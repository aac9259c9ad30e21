import type { Duplex } from 'node:stream';

/** Open connections of clients at one listener, up to a maximum. */
export class ClientConnections {
  private readonly open = new Set<Duplex>();
  private readonly onEmpty: (() => void)[] = [];

  constructor(private readonly max: number) {}

  get size(): number {
    return this.open.size;
  }

  /** Adds a connection. Returns false, and ends the connection, when the maximum is reached. */
  add(socket: Duplex): boolean {
    if (this.open.size >= this.max) {
      socket.on('error', () => undefined).destroy();
      return false;
    }
    this.open.add(socket);
    socket.once('close', () => {
      this.open.delete(socket);
      if (this.open.size === 0) for (const resolve of this.onEmpty.splice(0)) resolve();
    });
    return true;
  }

  /** Resolves when no connection is open. */
  waitUntilEmpty(): Promise<void> {
    if (this.open.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.onEmpty.push(resolve));
  }

  destroyAll(): void {
    for (const socket of [...this.open]) socket.destroy();
  }
}
