import { readLeaderHint } from '@cloudless/api';
import type { CoordinatorConnection } from './io.js';

/** Limits of {@link retryWithoutLeader}. */
export interface LeaderRetryTimes {
  /** Time for which a call is repeated while no coordinator leads, milliseconds. */
  readonly retryMs: number;
  /** Pause after each coordinator has refused, milliseconds. */
  readonly pauseMs: number;
}

/** A new leader acts within seconds after the old one has ended. */
export const LEADER_RETRY_TIMES: LeaderRetryTimes = { retryMs: 10_000, pauseMs: 500 };

/** The call that {@link retryWithoutLeader} repeats. */
export interface RepeatedCall {
  readonly signal: AbortSignal | undefined;
  /** Deadline of all attempts together, milliseconds; undefined or 0: none. */
  readonly timeoutMs: number | undefined;
  /** Number of coordinators that the attempts reach in turn. */
  readonly coordinators: number;
}

/**
 * Repeats a unary call which a coordinator refused because it knows no leader: the refusal says that
 * nothing was changed. Streams are opened again by their commands.
 * @param attempt - Makes the call within the deadline that remains.
 * @throws The failure of the last attempt.
 */
export async function retryWithoutLeader<Result>(
  attempt: (timeoutMs: number | undefined) => Promise<Result>,
  { signal, timeoutMs, coordinators }: RepeatedCall,
  { retryMs, pauseMs }: LeaderRetryTimes,
): Promise<Result> {
  const startedAtMs = performance.now();
  const hasDeadline = timeoutMs !== undefined && timeoutMs > 0;
  const limitMs = hasDeadline ? Math.min(timeoutMs, retryMs) : retryMs;
  for (let refusals = 0; ;) {
    try {
      const remainingMs = hasDeadline
        ? Math.max(1, Math.ceil(timeoutMs - (performance.now() - startedAtMs)))
        : timeoutMs;
      return await attempt(remainingMs);
    } catch (reason) {
      if (!isLeaderMissing(reason)) throw reason;
      refusals += 1;
      const delayMs = refusals % coordinators === 0 ? pauseMs : 0;
      const isOver = performance.now() - startedAtMs + delayMs >= limitMs;
      if (isOver || !(await pause(delayMs, signal))) throw reason;
    }
  }
}

/** Returns true for the refusal of a coordinator that neither leads nor reaches the leader. */
export function isLeaderMissing(reason: unknown): boolean {
  return readLeaderHint(reason) !== undefined;
}

/** Returns a connection whose unary calls are repeated while no coordinator leads. */
export function withLeaderRetry(
  connection: CoordinatorConnection,
  times: LeaderRetryTimes = LEADER_RETRY_TIMES,
): CoordinatorConnection {
  const { transport } = connection;
  return {
    ...connection,
    transport: {
      unary: (method, signal, timeoutMs, ...rest) =>
        retryWithoutLeader(
          (remainingMs) => transport.unary(method, signal, remainingMs, ...rest),
          { signal, timeoutMs, coordinators: 1 },
          times,
        ),
      stream: (...call) => transport.stream(...call),
    },
  };
}

/** Resolves with false when the signal ended the pause. */
function pause(pauseMs: number, signal: AbortSignal | undefined): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (isComplete: boolean): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      resolve(isComplete);
    };
    const onAbort = (): void => end(false);
    const timer = setTimeout(() => end(true), pauseMs);
    if (signal?.aborted === true) return end(false);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}
