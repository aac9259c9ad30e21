import { CloudlessError, type Clock, type Timer } from '@cloudless/base';
import { readLeaderHint } from '@cloudless/api';
import type { NamedLeader } from './coordinator-directory.js';

/**
 * Time after which the agent leaves a silent coordinator, milliseconds: from the TCP connection to
 * the open connection, and again from there between two answers to pings until the Welcome. A
 * single coordinator, or one that was named as the leader, has as much time as the admission of
 * thousands of agents takes: dialling again meanwhile would only add load.
 */
const NO_ANSWER_MS = { ofSeveral: 10_000, ofOnlyOne: 60_000 };
/**
 * Time to the TCP connection, milliseconds. The machine of a coordinator may be gone, even when
 * others name that coordinator as the leader. A coordinator that has just been silent must accept
 * the connection quickly: meanwhile the lease of this node runs at a new leader.
 */
const REACH_MS = { ofSeveral: 5_000, ofSilent: 1_000 };
/**
 * The agents of a large cluster wait longer for a silent coordinator, which may have to accept all
 * their connections: this many times the longest pause between two dials, which the coordinator
 * computes from its time to admit all agents.
 */
const NO_ANSWER_PER_PAUSE = 5;
/**
 * Time to the Welcome of a coordinator that answers pings, milliseconds. While no coordinator
 * leads, the others let agents wait for a few seconds; thousands of agents wait longer for their
 * turn.
 */
const WELCOME_TIMEOUT_MS = { ofSeveral: 20_000, ofOnlyOne: 60_000 };

/** An attempt to get a session, and its progress. */
export interface DialAttempt {
  readonly address: string;
  /** Time from the dial to the TCP connection, milliseconds. */
  readonly reachMs: number;
  /** Time from the TCP connection to the open connection, milliseconds. */
  readonly openMs: number;
  /** Time without an answer to a ping on the open connection until the Welcome, milliseconds. */
  readonly silenceMs: number;
  /** Time from the open connection to the Welcome, milliseconds. */
  readonly welcomeMs: number;
  /** Epoch of the Welcome. */
  epoch?: bigint;
  welcomed: boolean;
  admitted: boolean;
  /** True when the coordinator did not answer in time. */
  silent: boolean;
  /** True when the agent has dialled the address: it has all that a connection needs. */
  dialled: boolean;
  /** True when the machine at the address has accepted the TCP connection. */
  reached: boolean;
}

/**
 * Returns a new attempt.
 * @param dial - `isRedirect`: another coordinator named this address as that of the leader.
 *   `wasSilent`: the coordinator did not answer a moment ago. `isSingle`: there is no other
 *   address. `busyRounds`: as {@link BusyRounds.count}. `maxPauseMs`: as {@link
 *   ReconnectBackoff.maxPauseMs}.
 */
export function createAttempt(
  address: string,
  dial: {
    readonly isRedirect: boolean;
    readonly wasSilent: boolean;
    readonly isSingle: boolean;
    readonly busyRounds: number;
    readonly maxPauseMs: number;
  },
): DialAttempt {
  const progress = { welcomed: false, admitted: false, silent: false };
  return { address, ...chooseTimeouts(dial), ...progress, dialled: false, reached: false };
}

function chooseTimeouts({
  isRedirect,
  wasSilent,
  isSingle,
  busyRounds,
  maxPauseMs,
}: Parameters<typeof createAttempt>[1]): Timeouts {
  const { ofSeveral, ofOnlyOne } = NO_ANSWER_MS;
  if (isSingle || isRedirect)
    return {
      reachMs: isSingle ? ofOnlyOne : REACH_MS.ofSeveral,
      openMs: ofOnlyOne,
      silenceMs: ofOnlyOne,
      welcomeMs: WELCOME_TIMEOUT_MS.ofOnlyOne,
    };
  const firstMs = Math.max(ofSeveral, NO_ANSWER_PER_PAUSE * maxPauseMs);
  const silenceMs = Math.min(ofOnlyOne, firstMs * 2 ** busyRounds);
  return {
    reachMs: wasSilent ? REACH_MS.ofSilent : REACH_MS.ofSeveral,
    openMs: wasSilent && busyRounds === 0 ? REACH_MS.ofSilent : silenceMs,
    silenceMs,
    welcomeMs: Math.max(WELCOME_TIMEOUT_MS.ofSeveral, silenceMs),
  };
}

type Timeouts = Pick<DialAttempt, 'reachMs' | 'openMs' | 'silenceMs' | 'welcomeMs'>;

/**
 * Counts the rounds over all coordinators in which at least one accepted the TCP connection, and
 * none answered in time: they are alive and have too much to do, as when thousands of agents dial
 * at the same moment. An agent that leaves such a coordinator leaves a connection behind that the
 * coordinator still has to look at, so each such round doubles the time that an agent waits.
 */
export class BusyRounds {
  private rounds = 0;
  private isBusy = false;
  private hasAnswer = false;

  /** Number of such rounds since the last session, or since a coordinator answered. */
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
    this.isBusy ||= silent && reached && !welcomed;
    this.hasAnswer ||= welcomed || (reached && !silent);
    if (this.hasAnswer) this.rounds = 0;
    if (!isRoundOver) return;
    if (this.isBusy && !this.hasAnswer) this.rounds += 1;
    this.isBusy = false;
    this.hasAnswer = false;
  }
}

/** Returns the leader that the failure of an attempt names, if any. */
export function readNamedLeader(failure: unknown): NamedLeader | undefined {
  const { address, epoch } = readLeaderHint(failure) ?? {};
  if (address === undefined) return undefined;
  return { address, epoch: epoch !== undefined && /^\d+$/.test(epoch) ? BigInt(epoch) : undefined };
}

/**
 * Interval at which {@link AnswerTimer} looks at the clock, milliseconds: it notices when the event
 * loop stands still for longer.
 */
const LOOK_MS = 500;

/**
 * Reports a coordinator that does not answer. The time for which the event loop of this agent stood
 * still does not count: no answer could be received.
 */
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
    if (!this.isEnded) this.wait(limitMs, limitMs);
  }

  /** Ends the timer. */
  cancel(): void {
    this.isEnded = true;
    this.timer?.cancel();
  }

  private wait(leftMs: number, limitMs: number): void {
    const stepMs = Math.min(leftMs, LOOK_MS);
    this.timer = this.clock.setTimer(stepMs, () => {
      if (leftMs > stepMs) this.wait(leftMs - stepMs, limitMs);
      else this.onSilent(new CloudlessError('unavailable', `no answer within ${limitMs} ms`));
    });
  }
}

/** Records that the machine has accepted the TCP connection, and begins the time for the rest. */
export function noteReached(attempt: DialAttempt, timer: AnswerTimer): void {
  attempt.reached = true;
  timer.restart(attempt.openMs);
}

/** Records that the agent dials, and begins the time to the TCP connection. */
export function noteDialled(attempt: DialAttempt, timer: AnswerTimer): void {
  attempt.dialled = true;
  timer.restart(attempt.reachMs);
}

/**
 * Records that the connection is open, and begins the time to the Welcome. The open connection is
 * an answer, for which the agent may have waited behind thousands of others. A transport may open
 * it without a call of {@link noteReached}.
 */
export function noteOpened(attempt: DialAttempt, timer: AnswerTimer): void {
  attempt.reached = true;
  timer.restart(attempt.welcomeMs);
}
