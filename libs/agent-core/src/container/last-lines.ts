import {
  errorFields,
  errorKindOf,
  type Clock,
  type ContainerId,
  type Log,
  type StopSignal,
} from '@cloudless/base';
import { LAST_LINES, toLastLines } from '@cloudless/api';
import type { ContainerRuntime } from '@cloudless/runtime';
import { decodeOutput } from './log-entry.js';

/**
 * Maximum time that the report of an exit waits for the last lines, milliseconds. Reading takes a
 * few milliseconds; a runtime waits some hundreds for output of child processes.
 */
const READ_TIMEOUT_MS = 1_000;
/** Log entries to read. A long line is split into several entries. */
const MAX_ENTRIES = 2 * LAST_LINES.count;

export interface LastLinesDeps {
  readonly runtime: Pick<ContainerRuntime, 'logs'>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Reads the last lines of an exited container, both streams in their order. Resolves after all
 * output has been read. Empty when there is no output or when it cannot be read; never rejects.
 * @param stop - Stops reading early.
 */
export async function readLastLines(
  containerId: ContainerId,
  { runtime, clock, log }: LastLinesDeps,
  stop: StopSignal,
): Promise<readonly string[]> {
  const giveUp = new AbortController();
  const onStop = (): void => giveUp.abort();
  const timer = clock.setTimer(READ_TIMEOUT_MS, onStop);
  stop.addEventListener('abort', onStop, { once: true });
  const lines: string[] = [];
  const continues = { stdout: false, stderr: false };
  try {
    for await (const { stream, text, partial } of runtime.logs(
      containerId,
      { follow: true, tailLines: MAX_ENTRIES },
      giveUp.signal,
    )) {
      if (!continues[stream]) lines.push(decodeOutput(text).text);
      if (lines.length > LAST_LINES.count) lines.shift();
      continues[stream] = partial;
    }
  } catch (reason) {
    if (errorKindOf(reason) !== 'notFound')
      log.warn('last lines not read', { containerId, ...errorFields(reason) });
  } finally {
    timer.cancel();
    stop.removeEventListener('abort', onStop);
  }
  return toLastLines(lines);
}
