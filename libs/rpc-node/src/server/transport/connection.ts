import type { Socket } from 'node:net';
import { createContextKey, type ContextKey } from '@connectrpc/connect';
import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';

/** The connection that a call came in on, as handlers see it. */
export interface ClientConnection {
  /** Unique within the process; for logs. */
  readonly id: string;
  readonly remoteAddress: string;
  readonly protocol: 'h2' | 'http/1.1';
  /**
   * Runs `listener` at each HTTP/2 PING of the client. HTTP/1.1 has no PING.
   * @returns The function that ends the subscription.
   */
  onPing(listener: () => void): () => void;
  /**
   * Runs `listener` once when the connection is closed, by either side. If the connection is closed
   * already, `listener` runs in a microtask after this call.
   * @returns The function that ends the subscription.
   */
  onClose(listener: () => void): () => void;
  /** Closes the socket at once, and ends every call on it. */
  destroy(): void;
}

/**
 * Context value of each call of a server. Undefined only without a server, as in the router
 * transport.
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
  readonly headTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Runs when the first call of a connection without calls starts, and when its last call ends. */
  readonly onBusyChange?: (connection: ServerConnection, state: 'busy' | 'idle') => void;
}

/**
 * The server's side of a {@link ClientConnection}. Counts its calls, and closes it after a time
 * without calls.
 */
export class ServerConnection implements ClientConnection {
  readonly remoteAddress: string;
  protocol: 'h2' | 'http/1.1' = 'http/1.1';
  private readonly pingListeners = new Set<() => void>();
  private readonly closeListeners = new Set<() => void>();
  private closed = false;
  private openCalls = 0;
  private draining = false;
  private timer: Timer;
  private drainSession: (() => void) | undefined;

  constructor(
    readonly id: string,
    readonly socket: Socket,
    private readonly settings: ConnectionSettings,
  ) {
    this.remoteAddress = socket.remoteAddress ?? '';
    this.timer = this.closeAfter(settings.headTimeoutMs, 'no request within the head timeout');
    socket.on('error', (reason) =>
      settings.log.debug('connection failed', { connectionId: id, ...errorFields(reason) }),
    );
    socket.once('close', () => this.onClosed());
  }

  /**
   * Records that the connection speaks HTTP/2: the idle timeout applies, and `drain` ends the
   * session with GOAWAY.
   */
  switchToHttp2(drain: () => void): void {
    this.protocol = 'h2';
    this.drainSession = drain;
    if (this.openCalls === 0) this.restartTimer(this.settings.idleTimeoutMs, 'idle');
  }

  /** Each call is paired with one call of {@link onCallEnd}. */
  onCallStart(): void {
    this.openCalls += 1;
    this.timer.cancel();
    if (this.openCalls === 1) this.settings.onBusyChange?.(this, 'busy');
  }

  onCallEnd(): void {
    this.openCalls -= 1;
    if (this.openCalls > 0 || this.closed) return;
    this.settings.onBusyChange?.(this, 'idle');
    if (this.draining && this.drainSession === undefined) this.socket.destroySoon();
    else this.restartTimer(this.settings.idleTimeoutMs, 'idle');
  }

  get isClosed(): boolean {
    return this.closed;
  }

  onPingReceived(): void {
    this.notify(this.pingListeners);
  }

  /** Lets running calls end, refuses new ones, then closes the connection. */
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

  private restartTimer(delayMs: number, reason: string): void {
    this.timer.cancel();
    this.timer = this.closeAfter(delayMs, reason);
  }

  private closeAfter(delayMs: number, why: string): Timer {
    return this.settings.clock.setTimer(delayMs, () => {
      this.settings.log.debug('connection closed by the server', { connectionId: this.id, why });
      this.socket.destroy();
    });
  }

  /** An exception of one listener must not reach the other listeners or the server. */
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

/** Subscriptions are independent, also of the same function. */
function subscribe(listeners: Set<() => void>, listener: () => void): () => void {
  const subscription = (): void => listener();
  listeners.add(subscription);
  return () => void listeners.delete(subscription);
}
