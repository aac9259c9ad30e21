import type { Socket } from 'node:net';
import type { ServerConnection } from './connection.js';

/** The open connections of a server, limited in number. */
export class ConnectionPool {
  private readonly bySocket = new Map<Socket, ServerConnection>();
  /** Connections without a call so far. Oldest first. */
  private readonly unused = new Set<ServerConnection>();

  /** Connections whose calls have all ended. Oldest first. */
  private readonly idle = new Set<ServerConnection>();

  constructor(private readonly limit: number) {}

  get size(): number {
    return this.bySocket.size;
  }

  get sockets(): readonly Socket[] {
    return [...this.bySocket.keys()];
  }

  get all(): readonly ServerConnection[] {
    return [...this.bySocket.values()];
  }

  get(socket: Socket): ServerConnection | undefined {
    return this.bySocket.get(socket);
  }

  add(socket: Socket, connection: ServerConnection): void {
    this.bySocket.set(socket, connection);
    this.unused.add(connection);
  }

  remove(socket: Socket): void {
    const connection = this.bySocket.get(socket);
    if (connection !== undefined) this.markBusy(connection);
    this.bySocket.delete(socket);
  }

  /** Records the start of the first call on a connection that had none. */
  markBusy(connection: ServerConnection): void {
    this.unused.delete(connection);
    this.idle.delete(connection);
  }

  /** Records the end of the last call on a connection. */
  markIdle(connection: ServerConnection): void {
    if (!connection.isClosed) this.idle.add(connection);
  }

  /**
   * Makes room for one more connection. Closes, if needed, the oldest connection that has never
   * made a call, or else the oldest idle one.
   * @returns `available` when there was room, `evicted` when a connection was closed, `full` when
   *   every connection has open calls.
   */
  makeRoom(): 'available' | 'evicted' | 'full' {
    if (this.bySocket.size < this.limit) return 'available';
    const [oldest] = this.unused.size > 0 ? this.unused : this.idle;
    if (oldest === undefined) return 'full';
    oldest.destroy();
    this.remove(oldest.socket);
    return 'evicted';
  }
}
