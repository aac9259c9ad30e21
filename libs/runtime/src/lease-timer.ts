import type { Clock, Timer } from '@cloudless/base';
import type { ContainerLease } from './container-runtime.js';

/** Why a container ended whose lease was not renewed; part of its status. */
export const LEASE_ENDED_REASON = 'ended by itself: its lease was not renewed';

/** The lease of one running container, for runtimes. Once it has ended it stays so. */
export class LeaseTimer {
  private timer: Timer | undefined;
  private endsAt = Number.POSITIVE_INFINITY;
  private graceMs = 0;
  private ended = false;

  /** @param onEnd - Called once, when the lease ends; is to end the container within `graceMs`. */
  constructor(
    private readonly clock: Clock,
    private readonly onEnd: (graceMs: number) => void,
  ) {}

  /** Whether the lease ran out. */
  get hasEnded(): boolean {
    return this.ended;
  }

  /**
   * Runs anew from now on, or no more. A lease that has ended does not come back; nor does one
   * whose time is over and whose timer has only not fired yet, as in a process that stood still:
   * what it then reads may be as old.
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

  /** The container has ended, or somebody else looks after it. */
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
