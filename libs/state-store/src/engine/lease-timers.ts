import type { Clock, Timer } from '@cloudless/base';
import type { LeaseId } from '../state-store.js';

/** Longest single timer. Node.js limits timers to 2^31 - 1 ms; longer waits use several timers. */
const MAX_TIMER_MS = 24 * 60 * 60 * 1_000;

interface RunningLease {
  readonly ttlMs: number;
  /** Time of the clock at which the lease expires, in milliseconds. */
  deadline: number;
  timer: Timer;
}

/**
 * Expires leases. Holds deadlines in memory only: renewals are not written, so each lease starts
 * with its full time after a restart.
 */
export class LeaseTimers {
  private readonly running = new Map<LeaseId, RunningLease>();
  private readonly retries = new Set<Timer>();

  /**
   * @param onExpired - Runs once for each lease that expires, and again after {@link retryExpiry};
   *   not for a lease that is stopped.
   */
  constructor(
    private readonly clock: Clock,
    private readonly onExpired: (lease: LeaseId) => void,
  ) {}

  /** Starts or restarts a lease with its full time. */
  start(lease: LeaseId, ttlMs: number): void {
    this.stop(lease);
    this.running.set(lease, {
      ttlMs,
      deadline: this.clock.now() + ttlMs,
      timer: this.setTimer(lease, ttlMs),
    });
  }

  /**
   * Renews a lease: it now expires one full TTL from now.
   * @returns False when the lease does not exist or has expired, also when its timer is late.
   */
  renew(lease: LeaseId): boolean {
    const running = this.running.get(lease);
    if (running === undefined) return false;
    if (this.clock.now() >= running.deadline) {
      this.expire(lease);
      return false;
    }
    running.deadline = this.clock.now() + running.ttlMs;
    return true;
  }

  /** Stops tracking a lease. */
  stop(lease: LeaseId): void {
    this.running.get(lease)?.timer.cancel();
    this.running.delete(lease);
  }

  /** Calls `onExpired` again for an expired lease, after `delayMs` milliseconds. */
  retryExpiry(lease: LeaseId, delayMs: number): void {
    const timer = this.clock.setTimer(delayMs, () => {
      this.retries.delete(timer);
      this.onExpired(lease);
    });
    this.retries.add(timer);
  }

  /** Stops tracking all leases, and cancels all retries. */
  stopAll(): void {
    for (const lease of [...this.running.keys()]) this.stop(lease);
    for (const timer of this.retries) timer.cancel();
    this.retries.clear();
  }

  private setTimer(lease: LeaseId, delayMs: number): Timer {
    return this.clock.setTimer(Math.min(delayMs, MAX_TIMER_MS), () => this.onTimer(lease));
  }

  /** Expires the lease, or sets a new timer when a renewal has moved the deadline. */
  private onTimer(lease: LeaseId): void {
    const running = this.running.get(lease);
    if (running === undefined) return;
    const remainingMs = running.deadline - this.clock.now();
    if (remainingMs <= 0) this.expire(lease);
    else running.timer = this.setTimer(lease, remainingMs);
  }

  private expire(lease: LeaseId): void {
    this.stop(lease);
    this.onExpired(lease);
  }
}
