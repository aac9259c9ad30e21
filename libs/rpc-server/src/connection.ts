import type { Socket } from 'node:net';
import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import { createContextKey, type ContextKey } from '@connectrpc/connect';

/** One client's connection, as handlers see it. */
export interface Connection {
  /** Unique within the process; for logs. */
  readonly id: string;
  readonly remoteAddress: string;
  readonly protocol: 'h2' | 'http/1.1';
  /**
   * Calls `listener` at each HTTP/2 PING of the client; never in HTTP/1.1, which has none.
   * @returns Ends the subscription.
   */
  onPing(listener: () => void): () => void;
  /**
   * Calls `listener` once when the connection is closed, whoever closed it; if it already is, then
   * soon after this call.
   * @returns Ends the subscription.
   */
  onClose(listener: () => void): () => void;
  /** Cuts the connection now, with every call on it. */
  destroy(): void;
}

/**
 * The connection a call came in on: `context.values.get(connectionKey)`. Undefined only outside of
 * a server, as in the router transport.
 */
export const connectionKey: ContextKey<Connection | undefined> = createContextKey<
  Connection | undefined
>(undefined, {
  description: 'connection of the call',
});

/** What the connections of one server share. */
export interface ConnectionSettings {
  readonly clock: Clock;
  readonly log: Log;
  readonly headTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Called when the connection gets its first call of several, and when its last one has ended. */
  readonly onWork?: (connection: ServerConnection, work: 'began' | 'ended') => void;
}

/**
 * The server's side of a {@link Connection}: counts its calls, and ends it when none comes for too
 * long.
 */
export class ServerConnection implements Connection {
  readonly remoteAddress: string;
  protocol: 'h2' | 'http/1.1' = 'http/1.1';
  private readonly pingListeners = new Set<() => void>();
  private readonly closeListeners = new Set<() => void>();
  private closed = false;
  private calls = 0;
  private draining = false;
  private timer: Timer;
  private drainSession: (() => void) | undefined;

  constructor(
    readonly id: string,
    readonly socket: Socket,
    private readonly settings: ConnectionSettings,
  ) {
    this.remoteAddress = socket.remoteAddress ?? '';
    this.timer = this.endAfter(settings.headTimeoutMs, 'no request in time');
    socket.on('error', (reason) =>
      settings.log.debug('connection failed', { connectionId: id, ...errorFields(reason) }),
    );
    socket.once('close', () => this.onClosed());
  }

  /** From here on HTTP/2 rules: idle time counts, and `drain` ends the session in its own way. */
  becomeSession(drain: () => void): void {
    this.protocol = 'h2';
    this.drainSession = drain;
    if (this.calls === 0) this.restartTimer(this.settings.idleTimeoutMs, 'idle');
  }

  /** A call has begun; each is paired with one {@link callEnded}. */
  callBegan(): void {
    this.calls += 1;
    this.timer.cancel();
    if (this.calls === 1) this.settings.onWork?.(this, 'began');
  }

  callEnded(): void {
    this.calls -= 1;
    if (this.calls > 0 || this.closed) return;
    this.settings.onWork?.(this, 'ended');
    if (this.draining && this.drainSession === undefined) this.socket.destroySoon();
    else this.restartTimer(this.settings.idleTimeoutMs, 'idle');
  }

  get isClosed(): boolean {
    return this.closed;
  }

  pinged(): void {
    this.tell(this.pingListeners);
  }

  /** Lets the calls that run end, takes no others, then closes. */
  drain(): void {
    this.draining = true;
    if (this.drainSession !== undefined) this.drainSession();
    else if (this.calls === 0) this.socket.destroy();
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
    this.tell(this.closeListeners);
    this.closeListeners.clear();
    this.pingListeners.clear();
  }

  private restartTimer(delayMs: number, reason: string): void {
    this.timer.cancel();
    this.timer = this.endAfter(delayMs, reason);
  }

  private endAfter(delayMs: number, why: string): Timer {
    return this.settings.clock.setTimer(delayMs, () => {
      this.settings.log.debug('connection ended by the server', { connectionId: this.id, why });
      this.socket.destroy();
    });
  }

  /** One listener's fault must not reach the others, nor the server. */
  private tell(listeners: ReadonlySet<() => void>): void {
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

/** Every subscription is its own, also when the same function is given twice. */
function subscribe(listeners: Set<() => void>, listener: () => void): () => void {
  const own = (): void => listener();
  listeners.add(own);
  return () => void listeners.delete(own);
}
