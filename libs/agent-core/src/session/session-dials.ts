import type { Random } from '@cloudless/base';
import type { StoredCoordinator } from '../store/agent-store.js';
import { CoordinatorDirectory } from './coordinator-directory.js';
import { BusyRounds, createAttempt, readNamedLeader, type DialAttempt } from './dial-attempt.js';
import { ReconnectBackoff } from './reconnect-backoff.js';

/**
 * The dials of an agent, one after the other: which coordinator is next, how long the agent waits
 * for its answer, and how long before the dial.
 * @example
 * const attempt = dials.begin();
 * const failure = await run(attempt);
 * await sleep(clock, dials.end(attempt, { failure, nowMs: clock.now() }), signal);
 */
export class SessionDials {
  private readonly directory: CoordinatorDirectory;
  private readonly backoff: ReconnectBackoff;
  private readonly busy = new BusyRounds();
  private next: { readonly address: string; isRedirect: boolean; wasSilent: boolean };

  /** @param known - The coordinators that the cluster has named. */
  constructor(
    addresses: readonly string[],
    known: readonly StoredCoordinator[] | undefined,
    random: Random,
  ) {
    this.directory = new CoordinatorDirectory(addresses, known, random.next() < 0.5);
    this.backoff = new ReconnectBackoff(random);
    this.next = { address: this.directory.current, isRedirect: false, wasSilent: false };
  }

  /** The leader that the agent does not reach; undefined: there is none. */
  get unreachableLeader(): CoordinatorDirectory['unreachableLeader'] {
    return this.directory.unreachableLeader;
  }

  /** Uses the addresses of known coordinators from the next attempt on. */
  setKnown(known: readonly StoredCoordinator[]): void {
    this.directory.setKnown(known);
  }

  /** Uses the times of a Welcome or of ReconnectTimes. A time that is absent stays. */
  applyTimes(times: Parameters<ReconnectBackoff['applyTimes']>[0]): void {
    this.backoff.applyTimes(times);
  }

  /** Returns the next attempt, with its time limits. */
  begin(): DialAttempt {
    const { address, isRedirect, wasSilent } = this.next;
    return createAttempt(address, {
      ...{ isRedirect, wasSilent, isSingle: this.directory.isSingle },
      busyRounds: this.busy.count,
      maxPauseMs: this.backoff.maxPauseMs,
    });
  }

  /**
   * Chooses the next dial after an attempt.
   * @param result - `failure`: why there was no session, or why it has ended. `refusedDelayMs`: set
   *   when the coordinator refused this agent: longest delay once all coordinators have been
   *   dialled. `nowMs`: monotonic time.
   * @returns The delay before the next attempt, milliseconds.
   */
  end(
    attempt: DialAttempt,
    result: {
      readonly failure: unknown;
      readonly refusedDelayMs?: number | undefined;
      readonly nowMs: number;
    },
  ): number {
    const { welcomed, silent, dialled, reached, epoch } = attempt;
    const next = this.directory.next({
      hadSession: welcomed,
      isSilent: silent,
      isUnreachable: dialled && !reached && !welcomed,
      nowMs: result.nowMs,
      epoch,
      leader: readNamedLeader(result.failure),
    });
    this.next = next;
    this.busy.add(attempt, next.hasTriedAll);
    // A pause follows a round over all addresses: the lease of the node at a new leader runs. After
    // a session all other agents dial as well, also when they know the leader.
    if (!welcomed && (next.isRedirect || !next.hasTriedAll))
      return next.hasLostLeader
        ? this.backoff.delayAfterLeaderLoss()
        : this.backoff.delayBetweenAddresses();
    // Another coordinator may accept an agent that this one has refused.
    if (next.hasTriedAll && result.refusedDelayMs !== undefined)
      return this.backoff.delayAfterRefusal(result.refusedDelayMs);
    return welcomed ? this.backoff.delayAfterSession() : this.backoff.delayAfterFailure();
  }
}
