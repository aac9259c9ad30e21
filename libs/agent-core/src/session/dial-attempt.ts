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
}

/**
 * Returns a new attempt.
 * @param dial - `isRedirect`: another coordinator named this address as that of the leader.
 *   `wasSilent`: the coordinator did not answer a moment ago. `isSingle`: there is no other address.
 */
export function createAttempt(
  address: string,
  dial: { readonly isRedirect: boolean; readonly wasSilent: boolean; readonly isSingle: boolean },
): DialAttempt {
  return { address, ...chooseTimeouts(dial), welcomed: false, admitted: false, silent: false };
}

function chooseTimeouts({
  isRedirect,
  wasSilent,
  isSingle,
}: Parameters<typeof createAttempt>[1]): Pick<DialAttempt, 'reachMs' | 'openMs' | 'answerMs'> {
  const { ofSeveral, ofOnlyOne, ofSilent } = ANSWER_TIMEOUT_MS;
  if (isSingle) return { reachMs: ofOnlyOne, openMs: ofOnlyOne, answerMs: ofOnlyOne };
  if (isRedirect) return { reachMs: REACH_TIMEOUT_MS, openMs: ofOnlyOne, answerMs: ofOnlyOne };
  const openMs = wasSilent ? ofSilent : ofSeveral;
  return { reachMs: openMs, openMs, answerMs: ofSeveral };
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
