import type { KeptSession } from '@cloudless/agent-core';

/** Renews the leases of one coordinator over a connection of its own. */
export interface RenewalConnection {
  /**
   * Sends RenewLease.
   * @returns `refused` when the session is not the current session of the node any more.
   * @throws when the coordinator did not answer.
   */
  renew(session: KeptSession, loopAgeMs: number): Promise<'renewed' | 'refused'>;
  /** Ends the connection and its calls at once. */
  close(): void;
}

/**
 * Smallest age at which the main loop counts as late, milliseconds: above the interval of its marks
 * and the usual delay of a timer.
 */
const MIN_LATE_MS = 400;
/** Time after the last renewal at which the connection is closed, milliseconds. */
const IDLE_MS = 10_000;

/**
 * Decides when the lease of a session is renewed: at the ping interval, for as long as the main loop
 * of the agent is late by more than a third of the lease. The PINGs of the main loop, at three for
 * each lease, are missing from then on.
 */
export class LeaseRenewer {
  private session: KeptSession | undefined;
  private connection: RenewalConnection | undefined;
  private isWaiting = false;
  private sentAtMs = -Infinity;

  constructor(
    private readonly deps: {
      /** Opens a connection; its first call fails when the coordinator is not reached. */
      readonly connect: (address: string) => RenewalConnection;
      /** Monotonic milliseconds. */
      readonly now: () => number;
      /** Milliseconds since the main loop last turned. */
      readonly loopAgeMs: () => number;
    },
  ) {}

  keep(session: KeptSession): void {
    this.release();
    this.session = session;
  }

  release(): void {
    this.session = undefined;
    this.disconnect();
  }

  /** Call this method several times within each third of a lease. */
  tick(): void {
    const { session } = this;
    if (session === undefined) return;
    const { leaseMs, pingIntervalMs, address } = session;
    const sinceSentMs = this.deps.now() - this.sentAtMs;
    const loopAgeMs = this.deps.loopAgeMs();
    if (loopAgeMs < Math.max(MIN_LATE_MS, leaseMs / 3)) {
      if (sinceSentMs > IDLE_MS) this.disconnect();
      return;
    }
    if (sinceSentMs < Math.min(pingIntervalMs, leaseMs / 3)) return;
    // The previous call was not answered in time: the connection may be broken.
    if (this.isWaiting) this.disconnect();
    this.connection ??= this.deps.connect(address);
    this.send(session, this.connection, loopAgeMs);
  }

  private send(session: KeptSession, connection: RenewalConnection, loopAgeMs: number): void {
    this.sentAtMs = this.deps.now();
    this.isWaiting = true;
    connection.renew(session, loopAgeMs).then(
      (result) => {
        if (this.connection !== connection) return;
        this.isWaiting = false;
        if (result === 'refused') this.release();
      },
      () => {
        if (this.connection === connection) this.disconnect();
      },
    );
  }

  private disconnect(): void {
    this.connection?.close();
    this.connection = undefined;
    this.isWaiting = false;
  }
}
