import type { ConnectError } from '@connectrpc/connect';
import type { Clock, Timer } from '@cloudless/base';
import { FairQueue } from './fair-queue.js';
import { CALL_PRIORITIES, type CallPriority, type PriorityLimits } from './call-priority.js';
import type { OverloadLevel } from './overload-detector.js';
import { createRetryableError } from './retryable-error.js';

export interface CallAdmissionSettings {
  readonly clock: Clock;
  readonly priorities: Readonly<Record<CallPriority, PriorityLimits>>;
  /** As in `RpcLimits`. */
  readonly runningPerPrincipal: number;
  /** As in `RpcLimits`. */
  readonly callsPerIteration: number;
  /** Returns the current level; called for each call. */
  readonly getOverload: () => OverloadLevel;
  /**
   * Returns true when calls of the principal may start now. After a false result, waiting calls are
   * checked again at {@link CallAdmission.recheck}. Default: always true.
   */
  readonly canStart?: (principal: string) => boolean;
  /** Runs `action` in the next iteration of the event loop; default `setImmediate`. */
  readonly nextIteration?: (action: () => void) => void;
}

/**
 * Why a call was refused: the process is overloaded, the queue is full, or the call waited longer
 * than its priority allows.
 */
export type ShedReason = 'overload' | 'full' | 'waited';

/** Calls of one priority: running and waiting now, admitted and refused since the start. */
export interface PriorityLoad {
  readonly running: number;
  readonly waiting: number;
  readonly admitted: number;
  readonly shed: Readonly<Record<ShedReason, number>>;
}

interface WaitingCall {
  readonly principal: string;
  readonly start: () => void;
  readonly refuse: (reason: ShedReason) => void;
}

/** Queue, running calls and counters of one priority. */
class PriorityState {
  readonly queue = new FairQueue<WaitingCall>();
  /** Running calls of each principal. */
  readonly runningByPrincipal = new Map<string, number>();
  readonly shed: Record<ShedReason, number> = { overload: 0, full: 0, waited: 0 };
  running = 0;
  admitted = 0;
  startedThisIteration = 0;

  recordStart(principal: string): void {
    this.running += 1;
    this.admitted += 1;
    this.runningByPrincipal.set(principal, (this.runningByPrincipal.get(principal) ?? 0) + 1);
  }

  recordEnd(principal: string): void {
    this.running -= 1;
    const remaining = (this.runningByPrincipal.get(principal) ?? 1) - 1;
    if (remaining > 0) this.runningByPrincipal.set(principal, remaining);
    else this.runningByPrincipal.delete(principal);
  }
}

/**
 * Decides when a call may start. Higher priorities go first; the principals of one priority take
 * turns. Only a few user calls start in each iteration of the event loop, so that the server reads
 * new input, most of all the heartbeats of agents, before it starts more calls.
 */
export class CallAdmission {
  private readonly states = Object.fromEntries(
    CALL_PRIORITIES.map((priority) => [priority, new PriorityState()]),
  ) as Record<CallPriority, PriorityState>;
  private startedThisIteration = 0;
  private isIterationScheduled = false;

  constructor(private readonly settings: CallAdmissionSettings) {}

  /** Returns the current calls of each priority, and the counters since the start. */
  getLoad(): Readonly<Record<CallPriority, PriorityLoad>> {
    return Object.fromEntries(
      CALL_PRIORITIES.map((priority) => {
        const { running, queue, admitted, shed } = this.states[priority];
        return [priority, { running, waiting: queue.size, admitted, shed: { ...shed } }];
      }),
    ) as Record<CallPriority, PriorityLoad>;
  }

  /**
   * Refuses a call that the current overload level does not allow, before the server reads its
   * body.
   * @throws ConnectError RESOURCE_EXHAUSTED with the time after which to retry.
   */
  refuseIfOverloaded(priority: CallPriority, principal: string): void {
    if (!this.isShed(priority, principal)) return;
    this.states[priority].shed.overload += 1;
    throw createRefusal(priority, 'overload');
  }

  /**
   * Waits until the call may start.
   * @param signal - When aborted, the call leaves the queue.
   * @returns A function that ends the call. Run this function once the handler has finished;
   *   running it again has no effect.
   * @throws ConnectError RESOURCE_EXHAUSTED when the call is refused; the reason of `signal` when
   *   `signal` is aborted first.
   */
  admit(priority: CallPriority, principal: string, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const state = this.states[priority];
      let timer: Timer | undefined;
      const stopWaiting = (): void => {
        timer?.cancel();
        signal.removeEventListener('abort', onAbort);
      };
      const call: WaitingCall = {
        principal,
        start: () => {
          stopWaiting();
          resolve(this.start(priority, principal));
        },
        refuse: (reason) => {
          stopWaiting();
          state.queue.remove(principal, call);
          state.shed[reason] += 1;
          reject(createRefusal(priority, reason));
        },
      };
      const onAbort = (): void => {
        stopWaiting();
        state.queue.remove(principal, call);
        reject(signal.reason);
      };
      if (signal.aborted) return reject(signal.reason);
      if (state.queue.size === 0 && this.canStart(priority, principal)) return call.start();
      if (!this.makeQueueSpace(priority, principal)) return call.refuse('full');
      signal.addEventListener('abort', onAbort, { once: true });
      timer = this.settings.clock.setTimer(this.settings.priorities[priority].waitMs, () =>
        call.refuse('waited'),
      );
      state.queue.push(principal, call);
      this.startWaitingCalls();
    });
  }

  /**
   * Starts waiting calls that may start now. Must run when the result of `canStart` may have
   * changed.
   */
  recheck(): void {
    this.startWaitingCalls();
  }

  private isShed(priority: CallPriority, principal: string): boolean {
    const level = this.settings.getOverload();
    if (level === 0 || priority === 'control' || priority === 'stop') return false;
    if (priority === 'write') return level === 3;
    const state = this.states[priority];
    return (
      level > 1 || state.runningByPrincipal.has(principal) || state.queue.countOf(principal) > 0
    );
  }

  /**
   * Makes space for one call. When the queue is full, refuses the newest call of the principal with
   * the most waiting calls, unless that is the given principal.
   * @returns False when the queue is still full.
   */
  private makeQueueSpace(priority: CallPriority, principal: string): boolean {
    const { queue } = this.states[priority];
    if (queue.size < this.settings.priorities[priority].waiting) return true;
    queue.findNewestOfLongest(principal)?.refuse('full');
    return queue.size < this.settings.priorities[priority].waiting;
  }

  private canStart(priority: CallPriority, principal: string): boolean {
    const { priorities, runningPerPrincipal, callsPerIteration, canStart, getOverload } =
      this.settings;
    const state = this.states[priority];
    if (state.running >= priorities[priority].running) return false;
    if (priority === 'control') return true;
    // one call of each priority starts in each iteration, so that a higher priority cannot starve a
    // lower priority
    if (
      state.startedThisIteration > 0 &&
      this.startedThisIteration >= (getOverload() === 0 ? callsPerIteration : 1)
    )
      return false;
    if ((state.runningByPrincipal.get(principal) ?? 0) >= runningPerPrincipal) return false;
    return canStart?.(principal) ?? true;
  }

  private start(priority: CallPriority, principal: string): () => void {
    const state = this.states[priority];
    state.recordStart(principal);
    if (priority !== 'control') {
      this.startedThisIteration += 1;
      state.startedThisIteration += 1;
    }
    this.scheduleNextIteration();
    let hasEnded = false;
    return () => {
      if (hasEnded) return;
      hasEnded = true;
      state.recordEnd(principal);
      this.startWaitingCalls();
    };
  }

  private startWaitingCalls(): void {
    for (const priority of CALL_PRIORITIES) {
      const { queue } = this.states[priority];
      while (queue.size > 0) {
        const call = queue.shift((principal) => this.canStart(priority, principal));
        if (call === undefined) break;
        call.start();
      }
    }
  }

  private scheduleNextIteration(): void {
    if (this.isIterationScheduled) return;
    this.isIterationScheduled = true;
    const { nextIteration = setImmediate } = this.settings;
    nextIteration(() => {
      this.isIterationScheduled = false;
      this.startedThisIteration = 0;
      for (const state of Object.values(this.states)) state.startedThisIteration = 0;
      this.startWaitingCalls();
    });
  }
}

/**
 * Time after which a client should retry. Longest for overload, which ends later than a full queue.
 * Clients add jitter.
 */
const RETRY_AFTER_MS: Readonly<Record<ShedReason, number>> = {
  overload: 2_000,
  full: 1_000,
  waited: 1_000,
};

function createRefusal(priority: CallPriority, reason: ShedReason): ConnectError {
  const calls = priority === 'control' ? 'calls' : `${priority} calls`;
  const explanation = {
    overload: `the server is overloaded and accepts no more ${calls} from this client`,
    full: `too many ${calls} are waiting on the server`,
    waited: `the call waited too long behind other ${calls}`,
  }[reason];
  return createRetryableError(
    reason === 'overload' ? 'SERVER_OVERLOADED' : 'RATE_LIMITED',
    `${explanation}; try again in ${RETRY_AFTER_MS[reason] / 1_000} s`,
    RETRY_AFTER_MS[reason],
  );
}
