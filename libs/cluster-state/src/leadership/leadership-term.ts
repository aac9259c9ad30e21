import type { Clock, StopSignal } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';
import type { LeadershipLostError } from './leadership-lost.js';
import { createLateRenewalCause, type PendingRenewal } from './loss-causes.js';

/**
 * One leadership of this coordinator. A term ends once and for all: a coordinator that becomes
 * leader again gets a new term with a higher epoch, and whatever belongs to an old term stays
 * without effect.
 */
export interface LeadershipTerm {
  /** Number of the leadership. */
  readonly epoch: bigint;
  /**
   * True while this coordinator may act as the leader: commit, give orders, decide. Compares the
   * clock with the end of the term at each read, so a process that was paused for longer than its
   * lease reads false at once when it wakes. Once false, stays false.
   */
  readonly isActive: boolean;
  /** Aborted when the term ends. The reason is a {@link LeadershipLostError}. */
  readonly signal: StopSignal;
}

/** The term with the methods by which the leadership and the election change it. */
export class MutableTerm implements LeadershipTerm {
  private loss: LeadershipLostError | undefined;
  /** The newest renewal of the lease, until the store confirms it. */
  private pendingRenewal: PendingRenewal | undefined;
  private readonly ending = new AbortController();
  private readonly listeners = new Set<(reason: LeadershipLostError) => void>();

  /**
   * @param leader - Epoch, and the revision of the leader record that each commit requires.
   * @param actUntilMs - Monotonic time until which the leader may act. Infinity: without an end.
   */
  constructor(
    private readonly clock: Clock,
    private leader: { readonly epoch: bigint; readonly revision: Revision },
    private actUntilMs: number,
  ) {}

  get epoch(): bigint {
    return this.leader.epoch;
  }

  /** Revision of the leader record that this coordinator wrote. */
  get revision(): Revision {
    return this.leader.revision;
  }

  get isActive(): boolean {
    return this.loss === undefined && this.clock.now() < this.actUntilMs;
  }

  get signal(): StopSignal {
    return this.ending.signal;
  }

  /** The error of the end; undefined before {@link end}. */
  get lossError(): LeadershipLostError | undefined {
    return this.loss;
  }

  /** Monotonic time until which the leader may act. */
  get deadlineMs(): number {
    return this.actUntilMs;
  }

  /** Moves the end of the term to a later time. A term that has ended stays ended. */
  extend(actUntilMs: number): void {
    if (!this.isActive) return;
    this.actUntilMs = Math.max(this.actUntilMs, actUntilMs);
    this.pendingRenewal = undefined;
  }

  /** Records a renewal that was sent, or that has failed, for {@link createLimitCause}. */
  recordRenewal(renewal: PendingRenewal): void {
    this.pendingRenewal = renewal;
  }

  /** Says why the term has reached its own limit. */
  createLimitCause(): Error {
    return createLateRenewalCause(this.clock.now(), this.actUntilMs, this.pendingRenewal);
  }

  /** Continues with the leader record that accepting a restored state wrote. */
  continueWith(leader: { readonly epoch: bigint; readonly revision: Revision }): void {
    this.leader = leader;
  }

  /**
   * Calls `listener` once when the term ends, immediately when it has ended already.
   * @returns A function that ends the subscription.
   */
  onEnd(listener: (reason: LeadershipLostError) => void): () => void {
    if (this.loss !== undefined) listener(this.loss);
    else this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Ends the term; later calls return the error of the first. */
  end(error: LeadershipLostError): LeadershipLostError {
    if (this.loss === undefined) {
      this.loss = error;
      this.ending.abort(error);
      const listeners = [...this.listeners];
      this.listeners.clear();
      for (const listener of listeners) listener(error);
    }
    return this.loss;
  }
}
