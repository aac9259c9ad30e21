import type { Clock, Timer } from '@cloudless/base';
import type { ContainerLease } from './container-runtime.js';

/** Why a container ended whose lease was not renewed; part of its status. */
export const LEASE_ENDED_REASON = 'ended by itself: its lease was not renewed';

/** The lease of one running container, for runtimes. Once it has ended it stays so. */
export class LeaseTimer {
  private timer: Timer | undefined;
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

  /** Runs anew from now on, or no more. A lease that has ended does not come back. */
  renew(lease: ContainerLease | undefined): void {
    if (this.ended) return;
    this.timer?.cancel();
    if (lease === undefined) return;
    const { leaseMs, graceMs } = lease;
    this.timer = this.clock.setTimer(Math.max(0, leaseMs), () => {
      this.ended = true;
      this.onEnd(Math.max(0, graceMs));
    });
  }

  /** The container has ended, or somebody else looks after it. */
  cancel(): void {
    this.timer?.cancel();
    this.timer = undefined;
  }
}
