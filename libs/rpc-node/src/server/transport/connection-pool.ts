import type { Socket } from 'node:net';
import type { ServerConnection } from './connection.js';

/** The open connections of a server, at most `limit`. */
export class ConnectionPool {
  private readonly bySocket = new Map<Socket, ServerConnection>();
  /** Connections whose TLS handshake is not complete. Oldest first. */
  private readonly handshaking = new Set<ServerConnection>();
  /** Connections with TLS whose client has not shown an identity yet. Oldest first. */
  private readonly unidentified = new Set<ServerConnection>();
  /** Connections that never had a call. Oldest first. */
  private readonly unused = new Set<ServerConnection>();

  /** Connections whose calls have all ended. Longest idle first. */
  private readonly idle = new Set<ServerConnection>();

  /**
   * @param limit - As `RpcLimits.maxConnections`.
   * @param maxHandshakes - As in `RpcLimits`.
   */
  constructor(
    private readonly limit: number,
    private readonly maxHandshakes: number,
  ) {}

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
    if (connection !== undefined) {
      this.handshaking.delete(connection);
      this.unidentified.delete(connection);
      this.markBusy(connection);
    }
    this.bySocket.delete(socket);
  }

  /**
   * Records that the TLS handshake of a new connection starts. Above `maxHandshakes`, closes the
   * connection with the oldest handshake.
   * @returns True when a connection was closed.
   */
  markHandshaking(connection: ServerConnection): boolean {
    this.unused.delete(connection);
    this.handshaking.add(connection);
    if (this.handshaking.size <= this.maxHandshakes) return false;
    const [oldest] = this.handshaking;
    if (oldest !== undefined) this.evict(oldest);
    return true;
  }

  /** Records that the TLS handshake of a connection is complete. */
  markSecure(connection: ServerConnection): void {
    if (!this.handshaking.delete(connection)) return;
    this.unused.add(connection);
    this.unidentified.add(connection);
  }

  /** Records that a client has shown an identity: open calls now protect the connection. */
  markIdentified(connection: ServerConnection): void {
    this.unidentified.delete(connection);
  }

  /** Records that a connection without calls got a call. */
  markBusy(connection: ServerConnection): void {
    this.unused.delete(connection);
    this.idle.delete(connection);
  }

  /** Records that the last call of a connection ended. */
  markIdle(connection: ServerConnection): void {
    if (!connection.isClosed) this.idle.add(connection);
  }

  /**
   * Makes room for one more connection. At the limit, closes the oldest connection whose TLS
   * handshake is not complete, or else the oldest connection that never had a call, or else the
   * connection that is idle for the longest time, or else the oldest connection without an identity.
   * @returns `available` when the pool was below the limit, `evicted` when a connection was closed,
   *   `full` when every connection has open calls of a client with an identity.
   */
  makeRoom(): 'available' | 'evicted' | 'full' {
    if (this.bySocket.size < this.limit) return 'available';
    const [oldest] =
      [this.handshaking, this.unused, this.idle, this.unidentified].find(({ size }) => size > 0) ??
      [];
    if (oldest === undefined) return 'full';
    this.evict(oldest);
    return 'evicted';
  }

  private evict(connection: ServerConnection): void {
    connection.destroy();
    this.remove(connection.socket);
  }
}
