import { CloudlessError, type Clock, type Timer } from '@cloudless/base';
import { readLeaderHint } from '@cloudless/api';
import type { NamedLeader } from './coordinator-directory.js';

/**
 * Time after which the agent leaves a coordinator that does not answer, milliseconds: from the dial
 * to the open connection, and again from there to the Welcome. A single coordinator, or one that was
 * named as the leader, has as much time as the admission of thousands of agents takes: dialling again
 * meanwhile would only add load. A coordinator that has just been silent must open the connection
 * quickly: meanwhile the lease of this node runs at a new leader.
 */
const ANSWER_TIMEOUT_MS = { ofSeveral: 5_000, ofOnlyOne: 60_000, ofSilent: 1_000 };
/**
 * Time that a coordinator which was named as the leader has to accept the TCP connection,
 * milliseconds: its machine may be gone although others still name it.
 */
const REACH_TIMEOUT_MS = 5_000;

/** An attempt to get a session, and its progress. */
export interface DialAttempt {
  readonly address: string;
  /** Time from the dial to the TCP connection, milliseconds. */
  readonly reachMs: number;
  /** Time from the TCP connection to the open connection, milliseconds. */
  readonly openMs: number;
  /** Time from the open connection to the Welcome, milliseconds. */
  readonly answerMs: number;
  /** Epoch of the Welcome. */
  epoch?: bigint;
  welcomed: boolean;
  admitted: boolean;
  /** True when the coordinator did not answer in time. */
  silent: boolean;
  /** True when the machine at the address has accepted the TCP connection. */
  reached: boolean;
}

/**
 * Returns a new attempt.
 * @param dial - `isRedirect`: another coordinator named this address as that of the leader.
 *   `wasSilent`: the coordinator did not answer a moment ago. `isSingle`: there is no other address.
 *   `busyRounds`: as {@link BusyRounds.count}.
 */
export function createAttempt(
  address: string,
  dial: {
    readonly isRedirect: boolean;
    readonly wasSilent: boolean;
    readonly isSingle: boolean;
    readonly busyRounds: number;
  },
): DialAttempt {
  const progress = { welcomed: false, admitted: false, silent: false, reached: false };
  return { address, ...chooseTimeouts(dial), ...progress };
}

function chooseTimeouts({
  isRedirect,
  wasSilent,
  isSingle,
  busyRounds,
}: Parameters<typeof createAttempt>[1]): Pick<DialAttempt, 'reachMs' | 'openMs' | 'answerMs'> {
  const { ofSeveral, ofOnlyOne, ofSilent } = ANSWER_TIMEOUT_MS;
  if (isSingle) return { reachMs: ofOnlyOne, openMs: ofOnlyOne, answerMs: ofOnlyOne };
  if (isRedirect) return { reachMs: REACH_TIMEOUT_MS, openMs: ofOnlyOne, answerMs: ofOnlyOne };
  const reachMs = wasSilent ? ofSilent : ofSeveral;
  if (busyRounds === 0) return { reachMs, openMs: reachMs, answerMs: ofSeveral };
  const patienceMs = Math.min(ofOnlyOne, ofSeveral * 2 ** busyRounds);
  return { reachMs, openMs: patienceMs, answerMs: patienceMs };
}

/**
 * Counts the rounds over all coordinators in which each of them accepted the TCP connection and none
 * answered in time: they are alive and have too much to do, as when thousands of agents dial at the
 * same moment. An agent that leaves such a coordinator leaves a connection behind that the coordinator
 * still has to look at, so each such round doubles the time that an agent waits.
 */
export class BusyRounds {
  private rounds = 0;
  private isBusy = true;

  /** Number of such rounds since the last session, or since a round of another kind. */
  get count(): number {
    return this.rounds;
  }

  /**
   * Adds an attempt.
   * @param isRoundOver - True for the last attempt of a round over all addresses.
   */
  add(
    { welcomed, silent, reached }: Pick<DialAttempt, 'welcomed' | 'silent' | 'reached'>,
    isRoundOver: boolean,
  ): void {
    this.isBusy &&= silent && reached && !welcomed;
    if (!this.isBusy) this.rounds = 0;
    if (!isRoundOver) return;
    if (this.isBusy) this.rounds += 1;
    this.isBusy = true;
  }
}

/** Returns the leader that the failure of an attempt names, if any. */
export function readNamedLeader(failure: unknown): NamedLeader | undefined {
  const { address, epoch } = readLeaderHint(failure) ?? {};
  if (address === undefined) return undefined;
  return { address, epoch: epoch !== undefined && /^\d+$/.test(epoch) ? BigInt(epoch) : undefined };
}

/** Reports a coordinator that does not answer. */
export class AnswerTimer {
  private timer: Timer | undefined;
  private isEnded = false;

  /** @param onSilent - Called when the limit of {@link restart} has passed. */
  constructor(
    private readonly clock: Clock,
    private readonly onSilent: (reason: CloudlessError) => void,
  ) {}

  /** Begins a new limit. Has no effect after {@link cancel}. */
  restart(limitMs: number): void {
    this.timer?.cancel();
    if (this.isEnded) return;
    this.timer = this.clock.setTimer(limitMs, () =>
      this.onSilent(new CloudlessError('unavailable', `no answer within ${limitMs} ms`)),
    );
  }

  /** Ends the timer. */
  cancel(): void {
    this.isEnded = true;
    this.timer?.cancel();
  }
}

/** Records that the machine has accepted the TCP connection, and begins the time for the rest. */
export function noteReached(attempt: DialAttempt, timer: AnswerTimer): void {
  attempt.reached = true;
  timer.restart(attempt.openMs);
}
