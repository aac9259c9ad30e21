import type { Socket } from 'node:net';
import { createContextKey, type ContextKey } from '@connectrpc/connect';
import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { PeerCertificates } from './tls-acceptor.js';

/** The connection of a call, in the form that handlers get. */
export interface ClientConnection {
  /** Unique within the server; for logs. */
  readonly id: string;
  /** IP address of the client; empty when the socket closed at once. */
  readonly remoteAddress: string;
  readonly protocol: 'h2' | 'http/1.1';
  /** True when the connection is encrypted; false for plaintext. */
  readonly tls: boolean;
  /**
   * The certificates of the client as the client sent them, not verified. Undefined in plaintext
   * and without a client certificate.
   */
  readonly peer?: PeerCertificates | undefined;
  /**
   * Runs `listener` at each HTTP/2 PING of the client. HTTP/1.1 has no PING.
   * @returns A function that ends the subscription.
   */
  onPing(listener: () => void): () => void;
  /**
   * Runs `listener` once when the connection is closed, by either side. On a closed connection,
   * `listener` runs in a microtask after this call.
   * @returns A function that ends the subscription.
   */
  onClose(listener: () => void): () => void;
  /** Closes the connection once its running calls have ended. HTTP/2 accepts no new calls. */
  drain(): void;
  /** Closes the socket at once, and ends every call on it. */
  destroy(): void;
}

/**
 * Context value of each call of a server: its connection. Undefined when the connection closed
 * while the call came in, or without a server, as in the router transport.
 * @example
 * const connection = context.values.get(connectionKey);
 * connection?.onClose(() => session.end());
 */
export const connectionKey: ContextKey<ClientConnection | undefined> = createContextKey<
  ClientConnection | undefined
>(undefined, {
  description: 'connection of the call',
});

/** Settings that all connections of a server share. */
export interface ConnectionSettings {
  readonly clock: Clock;
  readonly log: Log;
  /** As in `RpcLimits`. */
  readonly handshakeWaitMs: number;
  /** As in `RpcLimits`. */
  readonly handshakeTimeoutMs: number;
  /** As in `RpcLimits`. */
  readonly headTimeoutMs: number;
  /** As in `RpcLimits`. */
  readonly idleTimeoutMs: number;
  /** Runs with `busy` when the first open call starts, and with `idle` when the last one ends. */
  readonly onBusyChange?: (connection: ServerConnection, state: 'busy' | 'idle') => void;
  /** Runs with the first call of a client that has an identity. */
  readonly onIdentified?: (connection: ServerConnection) => void;
}

/**
 * A {@link ClientConnection} in the form that the server uses. Counts the open calls, and closes
 * the connection after a time without calls.
 */
export class ServerConnection implements ClientConnection {
  readonly remoteAddress: string;
  protocol: 'h2' | 'http/1.1' = 'http/1.1';
  tls = false;
  peer: PeerCertificates | undefined;
  private readonly pingListeners = new Set<() => void>();
  private readonly closeListeners = new Set<() => void>();
  private closed = false;
  private openCalls = 0;
  private draining = false;
  private identified = false;
  private timer: Timer;
  private drainSession: (() => void) | undefined;
  /** The socket that requests are read from: within TLS, or else the socket itself. */
  private stream: Socket;

  /** @param socket - The accepted socket, below TLS. */
  constructor(
    readonly id: string,
    readonly socket: Socket,
    private readonly settings: ConnectionSettings,
  ) {
    this.remoteAddress = socket.remoteAddress ?? '';
    this.stream = socket;
    this.timer = this.closeAfter(settings.headTimeoutMs, NO_REQUEST);
    this.logErrorsOf(socket);
    socket.once('close', () => this.onClosed());
  }

  /** Records that the connection waits for the start of its TLS handshake. */
  onHandshakeWait(): void {
    this.tls = true;
    this.restartTimer(this.settings.handshakeWaitMs, 'too many other TLS handshakes');
  }

  /** Records the start of a TLS handshake: the handshake timeout applies. */
  onHandshakeStart(): void {
    this.restartTimer(this.settings.handshakeTimeoutMs, 'no TLS handshake within its timeout');
  }

  /** Records the end of a TLS handshake: the head timeout applies again. */
  onHandshakeEnd(secure: Socket, peer: PeerCertificates | undefined): void {
    this.stream = secure;
    this.peer = peer;
    this.logErrorsOf(secure);
    this.restartTimer(this.settings.headTimeoutMs, NO_REQUEST);
  }

  /**
   * Records the start of an HTTP/2 session: the idle timeout applies, and `drain` ends the session
   * with GOAWAY.
   */
  onSessionStart(drain: () => void): void {
    this.drainSession = drain;
    if (this.openCalls === 0) this.restartTimer(this.settings.idleTimeoutMs, 'idle');
  }

  /** Records a call of a client with an identity. */
  onIdentifiedCall(): void {
    if (this.identified) return;
    this.identified = true;
    this.settings.onIdentified?.(this);
  }

  /** Records the start of a call. Must be followed by one {@link ServerConnection.onCallEnd}. */
  onCallStart(): void {
    this.openCalls += 1;
    this.timer.cancel();
    if (this.openCalls === 1) this.settings.onBusyChange?.(this, 'busy');
  }

  /** Records the end of a call. */
  onCallEnd(): void {
    this.openCalls -= 1;
    if (this.openCalls > 0 || this.closed) return;
    this.settings.onBusyChange?.(this, 'idle');
    if (this.draining && this.drainSession === undefined) this.stream.destroySoon();
    else this.restartTimer(this.settings.idleTimeoutMs, 'idle');
  }

  get isClosed(): boolean {
    return this.closed;
  }

  /** Records an HTTP/2 PING of the client. */
  onPingReceived(): void {
    this.notify(this.pingListeners);
  }

  /** Closes the connection once its running calls have ended. HTTP/2 accepts no new calls. */
  drain(): void {
    this.draining = true;
    if (this.drainSession !== undefined) this.drainSession();
    else if (this.openCalls === 0) this.socket.destroy();
  }

  destroy(): void {
    this.socket.destroy();
  }

  onPing(listener: () => void): () => void {
    return subscribe(this.pingListeners, listener);
  }

  onClose(listener: () => void): () => void {
    const unsubscribe = subscribe(this.closeListeners, listener);
    if (this.closed) queueMicrotask(() => this.onClosed());
    return unsubscribe;
  }

  private onClosed(): void {
    this.closed = true;
    this.timer.cancel();
    this.notify(this.closeListeners);
    this.closeListeners.clear();
    this.pingListeners.clear();
  }

  /** Without a listener, an error of a socket would end the process. */
  private logErrorsOf(socket: Socket): void {
    socket.on('error', (reason) =>
      this.settings.log.debug('connection failed', {
        connectionId: this.id,
        ...errorFields(reason),
      }),
    );
  }

  private restartTimer(delayMs: number, reason: string): void {
    this.timer.cancel();
    this.timer = this.closeAfter(delayMs, reason);
  }

  private closeAfter(delayMs: number, reason: string): Timer {
    return this.settings.clock.setTimer(delayMs, () => {
      this.settings.log.debug('connection closed by the server', {
        connectionId: this.id,
        why: reason,
      });
      this.socket.destroy();
    });
  }

  /** Runs all listeners. Logs an exception of a listener and continues with the next. */
  private notify(listeners: ReadonlySet<() => void>): void {
    for (const listener of [...listeners]) {
      try {
        listener();
      } catch (reason) {
        this.settings.log.error('connection listener failed', {
          connectionId: this.id,
          ...errorFields(reason),
        });
      }
    }
  }
}

/** Reason in the log for a connection that the server closes before its first request. */
const NO_REQUEST = 'no request within the head timeout';

/** Adds a listener. A function that is added twice has two independent subscriptions. */
function subscribe(listeners: Set<() => void>, listener: () => void): () => void {
  const subscription = (): void => listener();
  listeners.add(subscription);
  return () => void listeners.delete(subscription);
}
