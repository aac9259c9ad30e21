import type { Clock, Timer } from '@cloudless/base';
import type { ContainerLease } from './container-runtime.js';

/** Exit reason of a container whose lease was not renewed; part of its status. */
export const LEASE_ENDED_REASON = 'ended by itself: its lease was not renewed';

/**
 * Lease of one running container, for implementations of runtimes. An ended lease cannot be
 * renewed.
 */
export class LeaseTimer {
  private timer: Timer | undefined;
  private endsAt = Number.POSITIVE_INFINITY;
  private graceMs = 0;
  private ended = false;

  /** @param onEnd - Called once when the lease ends; must end the container within `graceMs`. */
  constructor(
    private readonly clock: Clock,
    private readonly onEnd: (graceMs: number) => void,
  ) {}

  /** True after the lease has ended. */
  get hasEnded(): boolean {
    return this.ended;
  }

  /**
   * Restarts the lease from now on; undefined removes it. Has no effect on an ended lease, nor on
   * an expired one whose timer has not fired yet, as in a process that was suspended: the renewal
   * may be as old as the lease.
   */
  renew(lease: ContainerLease | undefined): void {
    if (!this.ended && this.clock.now() >= this.endsAt) this.end();
    if (this.ended) return;
    this.cancel();
    if (lease === undefined) return;
    const leaseMs = Math.max(0, lease.leaseMs);
    this.graceMs = Math.max(0, lease.graceMs);
    this.endsAt = this.clock.now() + leaseMs;
    this.timer = this.clock.setTimer(leaseMs, () => this.end());
  }

  /** Stops the timer: the container has exited, or another instance enforces the lease. */
  cancel(): void {
    this.timer?.cancel();
    this.timer = undefined;
    this.endsAt = Number.POSITIVE_INFINITY;
  }

  private end(): void {
    this.cancel();
    this.ended = true;
    this.onEnd(this.graceMs);
  }
}
