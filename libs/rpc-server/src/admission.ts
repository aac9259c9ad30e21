import type { Clock, Timer } from '@cloudless/base';
import { Code, type ConnectError } from '@connectrpc/connect';
import { FairQueue } from './fair-queue.js';
import { LANES, type Lane, type LaneLimits } from './lanes.js';
import type { OverloadLevel } from './overload.js';
import { refusal } from './refusal.js';

/** What {@link Admission} needs. */
export interface AdmissionSettings {
  readonly clock: Clock;
  readonly lanes: Readonly<Record<Lane, LaneLimits>>;
  readonly runningPerPrincipal: number;
  readonly callsPerTurn: number;
  readonly overload: () => OverloadLevel;
  /** Whether a principal may begin another call; it is asked again after {@link Admission.wake}. */
  readonly mayBegin?: (principal: string) => boolean;
  /** Runs `action` when the event loop has looked for input once more. */
  readonly nextTurn?: (action: () => void) => void;
}

/** Why a call was not admitted: `overload` of the process, `full` queue, or too long a wait. */
export type ShedReason = 'overload' | 'full' | 'waited';

/** What one lane holds now, and what became of its calls since the start. */
export interface LaneLoad {
  readonly running: number;
  readonly waiting: number;
  readonly admitted: number;
  readonly shed: Readonly<Record<ShedReason, number>>;
}

interface Waiting {
  readonly principal: string;
  readonly begin: () => void;
  readonly refuse: (reason: ShedReason) => void;
}

/** One lane: its queue, who runs in it, and its counts. */
class LaneState {
  readonly queue = new FairQueue<Waiting>();
  readonly runningBy = new Map<string, number>();
  readonly shed: Record<ShedReason, number> = { overload: 0, full: 0, waited: 0 };
  running = 0;
  admitted = 0;
  begunThisTurn = 0;

  began(principal: string): void {
    this.running += 1;
    this.admitted += 1;
    this.runningBy.set(principal, (this.runningBy.get(principal) ?? 0) + 1);
  }

  ended(principal: string): void {
    this.running -= 1;
    const left = (this.runningBy.get(principal) ?? 1) - 1;
    if (left > 0) this.runningBy.set(principal, left);
    else this.runningBy.delete(principal);
  }
}

/**
 * Decides when a call may begin. Lanes go in the order of their importance, principals of one lane
 * in turn. In one turn of the event loop only so many calls of users begin: what comes in
 * meanwhile, heartbeats first of all, is read before the next ones.
 */
export class Admission {
  private readonly states = Object.fromEntries(
    LANES.map((lane) => [lane, new LaneState()]),
  ) as Record<Lane, LaneState>;
  private begunThisTurn = 0;
  private turnAwaited = false;

  constructor(private readonly settings: AdmissionSettings) {}

  /** What each lane holds and has done. */
  load(): Readonly<Record<Lane, LaneLoad>> {
    return Object.fromEntries(
      LANES.map((lane) => {
        const { running, queue, admitted, shed } = this.states[lane];
        return [lane, { running, waiting: queue.size, admitted, shed: { ...shed } }];
      }),
    ) as Record<Lane, LaneLoad>;
  }

  /**
   * Refuses at once what would be shed anyway, before anything is read of it.
   * @throws ConnectError RESOURCE_EXHAUSTED, with a hint when to come again.
   */
  check(lane: Lane, principal: string): void {
    if (!this.isShed(lane, principal)) return;
    this.states[lane].shed.overload += 1;
    throw refusalOf(lane, 'overload');
  }

  /**
   * Waits until a call may begin.
   * @param signal - Aborted when nobody waits for the call any more.
   * @returns What to call, once, when the handler has done its work.
   * @throws ConnectError RESOURCE_EXHAUSTED when the call is shed; the reason of `signal` when that
   *   was first.
   */
  admit(lane: Lane, principal: string, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const state = this.states[lane];
      let timer: Timer | undefined;
      const leave = (): void => {
        timer?.cancel();
        signal.removeEventListener('abort', onAbort);
      };
      const call: Waiting = {
        principal,
        begin: () => {
          leave();
          resolve(this.began(lane, principal));
        },
        refuse: (reason) => {
          leave();
          state.queue.remove(principal, call);
          state.shed[reason] += 1;
          reject(refusalOf(lane, reason));
        },
      };
      const onAbort = (): void => {
        leave();
        state.queue.remove(principal, call);
        reject(signal.reason);
      };
      if (signal.aborted) return reject(signal.reason);
      if (state.queue.size === 0 && this.mayBegin(lane, principal)) return call.begin();
      if (!this.makeRoom(lane, principal)) return call.refuse('full');
      signal.addEventListener('abort', onAbort, { once: true });
      timer = this.settings.clock.setTimer(this.settings.lanes[lane].waitMs, () =>
        call.refuse('waited'),
      );
      state.queue.push(principal, call);
      this.begin();
    });
  }

  /** Looks again who may begin: something that `mayBegin` depends on has changed. */
  wake(): void {
    this.begin();
  }

  private isShed(lane: Lane, principal: string): boolean {
    const level = this.settings.overload();
    if (level === 0 || lane === 'control' || lane === 'stop') return false;
    if (lane === 'write') return level === 3;
    const state = this.states[lane];
    return level > 1 || state.runningBy.has(principal) || state.queue.sizeOf(principal) > 0;
  }

  /** In a full queue whoever has the most in it gives way. */
  private makeRoom(lane: Lane, principal: string): boolean {
    const { queue } = this.states[lane];
    if (queue.size < this.settings.lanes[lane].waiting) return true;
    queue.newestOfLongest(principal)?.refuse('full');
    return queue.size < this.settings.lanes[lane].waiting;
  }

  private mayBegin(lane: Lane, principal: string): boolean {
    const { lanes, runningPerPrincipal, callsPerTurn, mayBegin, overload } = this.settings;
    const state = this.states[lane];
    if (state.running >= lanes[lane].running) return false;
    if (lane === 'control') return true;
    // One call of each lane begins in any case: a lane that goes first does not starve the next.
    if (state.begunThisTurn > 0 && this.begunThisTurn >= (overload() === 0 ? callsPerTurn : 1))
      return false;
    if ((state.runningBy.get(principal) ?? 0) >= runningPerPrincipal) return false;
    return mayBegin?.(principal) ?? true;
  }

  private began(lane: Lane, principal: string): () => void {
    const state = this.states[lane];
    state.began(principal);
    if (lane !== 'control') {
      this.begunThisTurn += 1;
      state.begunThisTurn += 1;
    }
    this.awaitTurn();
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      state.ended(principal);
      this.begin();
    };
  }

  private begin(): void {
    for (const lane of LANES) {
      const { queue } = this.states[lane];
      while (queue.size > 0) {
        const call = queue.take((principal) => this.mayBegin(lane, principal));
        if (call === undefined) break;
        call.begin();
      }
    }
  }

  private awaitTurn(): void {
    if (this.turnAwaited) return;
    this.turnAwaited = true;
    const { nextTurn = setImmediate } = this.settings;
    nextTurn(() => {
      this.turnAwaited = false;
      this.begunThisTurn = 0;
      for (const state of Object.values(this.states)) state.begunThisTurn = 0;
      this.begin();
    });
  }
}

/** Shed calls come again after this; clients add chance to it. */
const RETRY_AFTER_MS: Readonly<Record<ShedReason, number>> = {
  overload: 2_000,
  full: 1_000,
  waited: 1_000,
};

function refusalOf(lane: Lane, reason: ShedReason): ConnectError {
  const calls = lane === 'control' ? 'calls' : `${lane} calls`;
  const why = {
    overload: `the server is overloaded and takes no more ${calls} of this client`,
    full: `the server has too many ${calls} waiting`,
    waited: `the call waited too long among other ${calls}`,
  }[reason];
  return refusal(
    Code.ResourceExhausted,
    `${why}; try again in ${RETRY_AFTER_MS[reason] / 1_000} s`,
    RETRY_AFTER_MS[reason],
  );
}
