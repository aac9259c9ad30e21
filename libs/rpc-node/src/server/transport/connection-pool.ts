import type { Socket } from 'node:net';
import type { ServerConnection } from './connection.js';
import type { HandshakeQueue } from './handshake-queue.js';

/** The open connections of a server, at most `limit`. */
export class ConnectionPool {
  private readonly bySocket = new Map<Socket, ServerConnection>();
  /** Connections with TLS whose client has not shown an identity yet. Oldest first. */
  private readonly unidentified = new Set<ServerConnection>();
  /** Connections that never had a call. Oldest first. */
  private readonly unused = new Set<ServerConnection>();

  /** Connections whose calls have all ended. Longest idle first. */
  private readonly idle = new Set<ServerConnection>();

  /**
   * @param limit - As `RpcLimits.maxConnections`.
   * @param handshakes - Connections whose TLS handshake is not complete.
   */
  constructor(
    private readonly limit: number,
    private readonly handshakes: Pick<
      HandshakeQueue<ServerConnection>,
      'complete' | 'remove' | 'findLeastUseful'
    >,
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
      this.handshakes.remove(connection);
      this.unidentified.delete(connection);
      this.markBusy(connection);
    }
    this.bySocket.delete(socket);
  }

  /** Records that a new connection needs a TLS handshake. */
  markHandshaking(connection: ServerConnection): void {
    this.unused.delete(connection);
  }

  /** Records that the TLS handshake of a connection is complete. */
  markSecure(connection: ServerConnection): void {
    this.handshakes.complete(connection);
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
   * Makes room for one more connection. At the limit, closes a connection whose TLS handshake is not
   * complete (see {@link HandshakeQueue.findLeastUseful}), or else the oldest connection that never
   * had a call, or else the connection that is idle for the longest time, or else the oldest
   * connection without an identity.
   * @param remoteAddress - Address of the new client.
   * @returns `available` when the pool was below the limit, `evicted` when a connection was closed,
   *   `full` when every connection has open calls of a client with an identity.
   */
  makeRoom(remoteAddress: string): 'available' | 'evicted' | 'full' {
    if (this.bySocket.size < this.limit) return 'available';
    const [oldest] = [this.unused, this.idle, this.unidentified].find(({ size }) => size > 0) ?? [];
    const leastUseful = this.handshakes.findLeastUseful(remoteAddress) ?? oldest;
    if (leastUseful === undefined) return 'full';
    this.evict(leastUseful);
    return 'evicted';
  }

  /** Closes a connection at once. */
  evict(connection: ServerConnection): void {
    connection.destroy();
    this.remove(connection.socket);
  }
}
