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
 * few milliseconds; a runtime waits some hundred milliseconds for output of child processes.
 */
const READ_TIMEOUT_MS = 1_000;
/** Log entries to read: a runtime splits a long line into several entries. */
const MAX_ENTRIES = 2 * LAST_LINES.count;

export interface LastLinesDeps {
  readonly runtime: Pick<ContainerRuntime, 'logs'>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Reads the last lines of an exited container, both output streams in the order of their lines.
 * Resolves when all output has been read, and after at most 1 s with the lines read until then.
 * Returns an empty list when the container has no output or its log cannot be read; never rejects.
 * @param stop - Ends the read; the lines read until then are returned.
 */
export async function readLastLines(
  containerId: ContainerId,
  { runtime, clock, log }: LastLinesDeps,
  stop: StopSignal,
): Promise<readonly string[]> {
  const readAbort = new AbortController();
  const onStop = (): void => readAbort.abort();
  const timer = clock.setTimer(READ_TIMEOUT_MS, onStop);
  stop.addEventListener('abort', onStop, { once: true });
  const lines: string[] = [];
  /** True while the next entry of a stream continues the same line. */
  const continues = { stdout: false, stderr: false };
  try {
    for await (const { stream, text, partial } of runtime.logs(
      containerId,
      { follow: true, tailLines: MAX_ENTRIES },
      readAbort.signal,
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
