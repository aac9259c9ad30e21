import type { Socket } from 'node:net';
import type { ServerConnection } from './connection.js';

/** The open connections of a server, of which there is only room for so many. */
export class ConnectionPool {
  private readonly bySocket = new Map<Socket, ServerConnection>();
  /**
   * Those that have not made a call yet, and those whose calls have all ended; the oldest first.
   */
  private readonly silent = new Set<ServerConnection>();
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
    this.silent.add(connection);
  }

  remove(socket: Socket): void {
    const connection = this.bySocket.get(socket);
    if (connection !== undefined) this.busy(connection);
    this.bySocket.delete(socket);
  }

  /** A call has begun on a connection that had none. */
  busy(connection: ServerConnection): void {
    this.silent.delete(connection);
    this.idle.delete(connection);
  }

  /** The last call on a connection has ended. */
  atRest(connection: ServerConnection): void {
    if (!connection.isClosed) this.idle.add(connection);
  }

  /**
   * Makes room for one more by closing the connection that will be missed least: one that never
   * made a call, as half-open ones do, else one that is at rest.
   * @returns `full` when all of them are at work.
   */
  makeRoom(): 'room' | 'madeRoom' | 'full' {
    if (this.bySocket.size < this.limit) return 'room';
    const [oldest] = this.silent.size > 0 ? this.silent : this.idle;
    if (oldest === undefined) return 'full';
    oldest.destroy();
    this.remove(oldest.socket);
    return 'madeRoom';
  }
}
