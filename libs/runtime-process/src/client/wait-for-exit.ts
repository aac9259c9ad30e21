import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import { isAlive } from '@cloudless/app-kit/background';
import { ANSWER_TIMEOUT_MS } from './supervisor-connection.js';

/** Interval of the checks whether the supervisor has exited; it exits within milliseconds. */
const POLL_MS = 2;

/**
 * Waits until a supervisor that has answered a shutdown has exited.
 * @throws kind `unavailable`, with what to do, after {@link ANSWER_TIMEOUT_MS}.
 */
export async function waitForExit(pid: number, startToken: string, clock: Clock): Promise<void> {
  const deadlineMs = clock.now() + ANSWER_TIMEOUT_MS;
  while (isAlive(pid, startToken)) {
    if (clock.now() >= deadlineMs)
      throw new CloudlessError(
        'unavailable',
        `the supervisor of the processes (process ${pid}) has ended all processes and has not exited within ${ANSWER_TIMEOUT_MS / 1_000} s: run kill -9 ${pid} on the machine`,
      );
    await sleep(clock, POLL_MS);
  }
}
