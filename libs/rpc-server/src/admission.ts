import type { Clock, Timer } from '@cloudless/base';
import { Code, type ConnectError } from '@connectrpc/connect';
import { FairQueue } from './fair-queue.js';
import { LANES, type Lane, type LaneLimits } from './lanes.js';
import type { OverloadLevel } from './overload.js';
import { refusal } from './refusal.js';

export interface AdmissionSettings {
  readonly clock: Clock;
  readonly lanes: Readonly<Record<Lane, LaneLimits>>;
  readonly runningPerPrincipal: number;
  readonly callsPerTurn: number;
  readonly overload: () => OverloadLevel;
  /**
   * Says whether calls of this principal may start now. {@link CallAdmission} calls it again after
   * {@link CallAdmission.recheck}. Default: always.
   */
  readonly mayBegin?: (principal: string) => boolean;
  /** Runs `action` in the next iteration of the event loop; default `setImmediate`. */
  readonly nextTurn?: (action: () => void) => void;
}

/**
 * Why a call was refused: the process is overloaded, the queue is full, or the call waited longer
 * than its priority allows.
 */
export type ShedReason = 'overload' | 'full' | 'waited';

/** Calls of one priority: running and waiting now, admitted and refused since the start. */
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

/** Queue, running calls and counters of one priority. */
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
 * Decides when a call may start. Higher priorities go first; the principals of one priority take
 * turns. Only a few user calls start in each iteration of the event loop, so that the server reads
 * new input, agents' heartbeats above all, before it starts more calls.
 */
export class Admission {
  private readonly states = Object.fromEntries(
    LANES.map((lane) => [lane, new LaneState()]),
  ) as Record<Lane, LaneState>;
  private begunThisTurn = 0;
  private turnAwaited = false;

  constructor(private readonly settings: AdmissionSettings) {}

  load(): Readonly<Record<Lane, LaneLoad>> {
    return Object.fromEntries(
      LANES.map((lane) => {
        const { running, queue, admitted, shed } = this.states[lane];
        return [lane, { running, waiting: queue.size, admitted, shed: { ...shed } }];
      }),
    ) as Record<Lane, LaneLoad>;
  }

  /**
   * Refuses a call that the current overload level does not allow, before the server reads its
   * body.
   * @throws ConnectError RESOURCE_EXHAUSTED with the time after which to retry.
   */
  check(lane: Lane, principal: string): void {
    if (!this.isShed(lane, principal)) return;
    this.states[lane].shed.overload += 1;
    throw refusalOf(lane, 'overload');
  }

  /**
   * Waits until the call may start.
   * @param signal - Aborted when the call has ended: it then leaves the queue.
   * @returns The function that ends the call's share. Call it once the handler has finished; later
   *   calls have no effect.
   * @throws ConnectError RESOURCE_EXHAUSTED when the call is refused; the reason of `signal` when
   *   `signal` is aborted first.
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

  /**
   * Starts waiting calls that may start now. Call it when the result of `canStart` may have
   * changed.
   */
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

  /** When the queue is full, the principal with the most waiting calls loses its newest one. */
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
    // One call of each priority starts in every iteration: a higher priority cannot starve a lower
    // one.
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

/** Time after which a client should retry. Clients add jitter. */
const RETRY_AFTER_MS: Readonly<Record<ShedReason, number>> = {
  overload: 2_000,
  full: 1_000,
  waited: 1_000,
};

function refusalOf(lane: Lane, reason: ShedReason): ConnectError {
  const calls = lane === 'control' ? 'calls' : `${lane} calls`;
  const why = {
    overload: `the server is overloaded and accepts no more ${calls} from this client`,
    full: `too many ${calls} are waiting on the server`,
    waited: `the call waited too long behind other ${calls}`,
  }[reason];
  return refusal(
    Code.ResourceExhausted,
    `${why}; try again in ${RETRY_AFTER_MS[reason] / 1_000} s`,
    RETRY_AFTER_MS[reason],
  );
}
