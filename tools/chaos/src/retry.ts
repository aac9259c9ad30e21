import { setTimeout as pause } from 'node:timers/promises';

/** Time between two attempts of a call, milliseconds. */
export const RETRY_MS = 50;

/**
 * Runs an attempt until one succeeds.
 * @param withinMs - Time limit; then the newest error is thrown.
 * @param run - Receives the number of the attempt, from 0.
 * @param pauseMs - Time between two attempts, milliseconds.
 */
export async function retry<Result>(
  withinMs: number,
  run: (attempt: number) => Promise<Result>,
  pauseMs = RETRY_MS,
): Promise<Result> {
  const until = performance.now() + withinMs;
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await run(attempt);
    } catch (reason) {
      if (performance.now() > until) throw reason;
    }
    await pause(pauseMs);
  }
}
