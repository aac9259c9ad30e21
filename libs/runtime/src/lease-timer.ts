import type { Clock, Timer } from '@cloudless/base';
import type { ContainerLease } from './container-runtime.js';

/** `ContainerStatus.reason` of a container whose lease was not renewed. */
export const LEASE_ENDED_REASON = 'ended by itself: its lease was not renewed';

/**
 * The lease of one running container, for implementations of runtimes. A lease that has ended
 * cannot be renewed.
 */
export class LeaseTimer {
  private timer: Timer | undefined;
  private endsAt = Number.POSITIVE_INFINITY;
  private graceMs = 0;
  private ended = false;

  /**
   * @param onEnd - Called once, when the lease ends; must end the container within `graceMs`. Not
   *   called after {@link cancel}.
   */
  constructor(
    private readonly clock: Clock,
    private readonly onEnd: (graceMs: number) => void,
  ) {}

  /** True after the lease has ended. */
  get hasEnded(): boolean {
    return this.ended;
  }

  /**
   * Restarts the lease from now on; undefined removes the lease. Does nothing when the lease has
   * ended. A lease that has expired but whose timer has not fired yet, as in a process that was
   * suspended, ends now: the renewal may be as old as the lease.
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

  /** Stops the timer. Call it when the container has exited or another instance takes over. */
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
