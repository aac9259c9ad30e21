import * as net from 'node:net';
import { errorFields, type Clock, type Log } from '@cloudless/base';
import { EventLoopQuota } from '../admission/event-loop-quota.js';
import { ConnectionPool } from './connection-pool.js';
import { ServerConnection } from './connection.js';
import { detectProtocol } from './detect-protocol.js';
import { HandshakeQueue } from './handshake-queue.js';
import { listen, type ListenAddress } from './listen.js';
import { shouldLogOccurrence } from './log-sampling.js';
import { MisdirectedClients } from './misdirected-clients.js';
import { TlsAcceptor, type ServerTls } from './tls-acceptor.js';

export interface ConnectionAcceptorSettings {
  readonly clock: Clock;
  readonly log: Log;
  /** Undefined: plaintext. */
  readonly tls: ServerTls | undefined;
  /** Protocols that TLS clients may choose, the preferred first. */
  readonly protocols: readonly ('h2' | 'http/1.1')[];
  /** As in `RpcLimits`. */
  readonly maxConnections: number;
  /** As in `RpcLimits`. */
  readonly maxHandshakes: number;
  /** As in `RpcLimits`. */
  readonly handshakeWaitMs: number;
  /** As in `RpcLimits`. */
  readonly handshakeTimeoutMs: number;
  /** As in `RpcLimits`. */
  readonly headTimeoutMs: number;
  /** As in `RpcLimits`. */
  readonly idleTimeoutMs: number;
  /**
   * Serves a connection whose protocol is known.
   * @param stream - The socket to read requests from: within TLS, or else of the connection.
   */
  readonly serve: (connection: ServerConnection, stream: net.Socket) => void;
}

/**
 * Connections in plaintext that begin in one iteration of the event loop, a few milliseconds of
 * work together; {@link HandshakeQueue} limits TLS handshakes. Thousands of agents that dial at
 * once must not keep a leader from the renewal of its lease.
 */
const PLAINTEXT_STARTS_PER_ITERATION = 16;

/**
 * Listens on a port, limits the number of connections, detects the protocol of each and makes the
 * TLS handshakes.
 */
export class ConnectionAcceptor {
  private readonly listener = net.createServer({ allowHalfOpen: true, noDelay: true });
  private readonly pool: ConnectionPool;
  private readonly tls: TlsAcceptor | undefined;
  private readonly misdirected: MisdirectedClients;
  private readonly handshakes: HandshakeQueue<ServerConnection>;
  private readonly plaintextStarts = new EventLoopQuota(PLAINTEXT_STARTS_PER_ITERATION);
  private nextNumber = 1;
  private droppedCount = 0;
  private draining = false;

  constructor(private readonly settings: ConnectionAcceptorSettings) {
    const { log, clock, tls, protocols, maxConnections, maxHandshakes } = settings;
    this.handshakes = new HandshakeQueue({
      ...{ clock, maxHandshakes },
      start: (connection) => this.startHandshake(connection),
      evict: (connection) => {
        this.pool.evict(connection);
        this.recordDrop();
      },
    });
    this.pool = new ConnectionPool(maxConnections, this.handshakes);
    this.misdirected = new MisdirectedClients(log);
    this.tls = tls === undefined ? undefined : new TlsAcceptor(tls, protocols, log);
    this.listener.on('connection', (socket) => this.accept(socket));
  }

  /** Starts to listen; see {@link listen} for the errors. */
  async listen(host: string, port: number, portOption: string): Promise<ListenAddress> {
    try {
      const tls = this.tls !== undefined;
      const address = await listen(this.listener, { host, port, portOption, tls });
      this.listener.on('error', (reason) =>
        this.settings.log.error('listener failed', errorFields(reason)),
      );
      return address;
    } catch (reason) {
      this.tls?.close();
      throw reason;
    }
  }

  /** Number of open connections. */
  get size(): number {
    return this.pool.size;
  }

  /** Number of connections that were closed because too many were open. */
  get dropped(): number {
    return this.droppedCount;
  }

  /** Accepts no more connections, and closes each open connection once its calls have ended. */
  drain(): void {
    this.draining = true;
    this.listener.close();
    this.tls?.close();
    this.handshakes.close();
    for (const connection of this.pool.all) connection.drain();
  }

  /** Destroys all connections. */
  destroyAll(): void {
    for (const connection of this.pool.all) connection.destroy();
  }

  /** Resolves once the listener and the last socket are closed. Must follow `drain`. */
  async waitUntilClosed(): Promise<void> {
    if (this.listener.listening)
      throw new Error('the listener is open; call drain() before waitUntilClosed()');
    await this.closed;
    // the listener closes slightly before its last sockets emit `close`
    await Promise.all(
      this.pool.sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve))),
    );
  }

  private readonly closed = new Promise<void>((resolve) => this.listener.once('close', resolve));

  private accept(socket: net.Socket): void {
    const { pool } = this;
    const space = pool.makeRoom(socket.remoteAddress ?? '');
    if (space !== 'available') this.recordDrop();
    if (space === 'full') {
      socket.destroy();
      return;
    }
    const connection = new ServerConnection(`c${this.nextNumber++}`, socket, {
      ...this.settings,
      onBusyChange: (changed, state) =>
        state === 'busy' ? pool.markBusy(changed) : pool.markIdle(changed),
      onIdentified: (identified) => pool.markIdentified(identified),
    });
    pool.add(socket, connection);
    socket.once('close', () => pool.remove(socket));
    this.detect(socket, connection);
    if (this.draining) connection.drain();
  }

  private detect(socket: net.Socket, connection: ServerConnection): void {
    const { tls, pool } = this;
    detectProtocol(socket, (protocol) => {
      if (tls !== undefined && protocol === 'tls') {
        pool.markHandshaking(connection);
        connection.onHandshakeWait();
        this.handshakes.add(connection);
      } else if (tls !== undefined) {
        this.misdirected.refusePlaintext(connection, protocol);
      } else if (protocol === 'tls') {
        this.misdirected.refuseTls(connection);
      } else {
        connection.protocol = protocol;
        this.plaintextStarts.run(connection.remoteAddress, () => this.servePlaintext(connection));
      }
    });
  }

  private servePlaintext(connection: ServerConnection): void {
    const { socket } = connection;
    if (!socket.destroyed) this.settings.serve(connection, socket);
  }

  private startHandshake(connection: ServerConnection): void {
    connection.onHandshakeStart();
    this.tls?.accept(connection.socket, (secure, peer) => {
      this.pool.markSecure(connection);
      connection.onHandshakeEnd(secure, peer);
      connection.protocol = secure.alpnProtocol === 'h2' ? 'h2' : 'http/1.1';
      this.settings.serve(connection, secure);
    });
  }

  /** Counts a connection that was closed because too many are open. */
  private recordDrop(): void {
    this.droppedCount += 1;
    if (!shouldLogOccurrence(this.droppedCount)) return;
    this.settings.log.warn('connections closed: too many are open', {
      open: this.pool.size,
      closed: this.droppedCount,
    });
  }
}
