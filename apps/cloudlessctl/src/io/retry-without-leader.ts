import type { Interceptor } from '@connectrpc/connect';
import { readLeaderHint } from '@cloudless/api';

/**
 * Time for which a call is repeated while no coordinator leads, milliseconds. A new leader acts
 * within seconds after the old one has ended.
 */
const RETRY_MS = 10_000;
/** Pause between two attempts, milliseconds. */
const PAUSE_MS = 500;

/**
 * Returns an interceptor that repeats a unary call which a coordinator refused because no coordinator
 * leads: the refusal says that nothing was changed. Streams are opened again by their commands.
 */
export function createLeaderRetry(retryMs = RETRY_MS, pauseMs = PAUSE_MS): Interceptor {
  return (next) => async (request) => {
    const startedAtMs = performance.now();
    for (;;) {
      try {
        return await next(request);
      } catch (reason) {
        if (request.stream || readLeaderHint(reason) === undefined) throw reason;
        const isOver = performance.now() - startedAtMs + pauseMs > retryMs;
        if (isOver || !(await pause(pauseMs, request.signal))) throw reason;
      }
    }
  };
}

/** Resolves with false when the signal ended the pause. */
function pause(pauseMs: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (isComplete: boolean): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      resolve(isComplete);
    };
    const onAbort = (): void => end(false);
    const timer = setTimeout(() => end(true), pauseMs);
    if (signal.aborted) return end(false);
    signal.addEventListener('abort', onAbort, { once: true });
  });
}
