import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock, Log, Timer } from '@cloudless/base';
import type { PeerIdentity } from '@cloudless/identity/verify';
import type { ProxyLimits } from '../ports.js';
import type { Handshake, LinkTls, SecureResult } from './link-tls.js';

/** Age from which an incomplete handshake gives way to another when all places are taken, ms. */
const REPLACEABLE_AGE_MS = 250;
/** Failures of handshakes between two lines of the log. */
const LOG_EVERY = 100;

export interface MeshAcceptorOptions {
  readonly tls: () => LinkTls | undefined;
  /** Returns why a peer is refused; undefined: accepted. */
  readonly check: (peer: PeerIdentity) => string | undefined;
  readonly onSecure: (
    result: Extract<SecureResult, { kind: 'secure' }>,
    path: 'link' | 'relay',
  ) => void;
  /** Called after each handshake has ended, also when it failed. */
  readonly onSettled: () => void;
  readonly limits: ProxyLimits;
  readonly clock: Clock;
  readonly log: Log;
}

interface Pending {
  readonly startedMs: number;
  readonly timer: Timer;
  readonly isSilent: () => boolean;
  handshake?: Handshake;
}

/**
 * Makes the handshakes of other proxies. At most `maxHandshakes` are incomplete: a further one
 * replaces the oldest whose peer has sent nothing, otherwise the oldest once that is older than
 * 250 ms, so that clients that never answer do not lock out proxies that answer at once.
 */
export class MeshAcceptor {
  /** Oldest first. */
  private readonly handshakes = new Set<Pending>();
  private failures = 0;

  constructor(private readonly options: MeshAcceptorOptions) {}

  /** Number of incomplete handshakes. */
  get pending(): number {
    return this.handshakes.size;
  }

  /** Handshakes that failed or were refused since the start. */
  get failed(): number {
    return this.failures;
  }

  accept(transport: Duplex, path: 'link' | 'relay', from: string): void {
    const { clock, limits } = this.options;
    const secure = this.options.tls();
    transport.on('error', () => undefined);
    if (secure === undefined || !this.makeRoom()) return void transport.destroy();
    if (path === 'link') (transport as Socket).allowHalfOpen = false;
    const pending: Pending = {
      startedMs: clock.now(),
      timer: clock.setTimer(limits.handshakeTimeoutMs, () => pending.handshake?.cancel()),
      isSilent: () => (transport as Partial<Socket>).bytesRead === 0,
    };
    this.handshakes.add(pending);
    const { check, onSecure } = this.options;
    pending.handshake = secure.accept(
      transport,
      check,
      () => clock.wallTime(),
      (result) => {
        this.end(pending);
        if (result.kind === 'secure') onSecure(result, path);
        else this.recordFailure(result.reason, from);
        this.options.onSettled();
      },
    );
  }

  /** Ends all incomplete handshakes. */
  close(): void {
    for (const { handshake } of [...this.handshakes]) handshake?.cancel();
  }

  private end(pending: Pending): void {
    pending.timer.cancel();
    this.handshakes.delete(pending);
  }

  private makeRoom(): boolean {
    const { limits, clock } = this.options;
    if (this.handshakes.size < limits.maxHandshakes) return true;
    const [oldest] = this.handshakes;
    const isOld = oldest !== undefined && clock.now() - oldest.startedMs >= REPLACEABLE_AGE_MS;
    const replaced = this.findSilent() ?? (isOld ? oldest : undefined);
    if (replaced === undefined) return false;
    this.end(replaced);
    replaced.handshake?.cancel();
    return true;
  }

  /** Returns the oldest handshake of a peer that has sent nothing. */
  private findSilent(): Pending | undefined {
    for (const pending of this.handshakes) if (pending.isSilent()) return pending;
    return undefined;
  }

  private recordFailure(reason: string, from: string): void {
    this.failures += 1;
    if (this.failures % LOG_EVERY !== 1) return;
    this.options.log.warn('a connection to the mesh address was refused', {
      ...{ from, error: reason, failed: this.failures },
    });
  }
}
