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
import { decodeOutput } from '../serving/log-entry.js';

/**
 * Most time that the end of a container waits for its last lines, milliseconds. They take a few; a
 * runtime gives what a process has left to others some hundreds to be written.
 */
const LAST_LINES_WITHIN_MS = 1_000;
/** Entries that are read: as many lines, some of them in pieces. */
const ENTRIES = 2 * LAST_LINES.count;

/** What {@link readLastLines} reads with. */
export interface LastLinesDeps {
  readonly runtime: Pick<ContainerRuntime, 'logs'>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * What an ended container wrote last, both streams in their order; all of it has been read then.
 * Empty when it wrote nothing, or when its output cannot be had. Never rejects.
 * @param stop - Gives up.
 */
export async function readLastLines(
  containerId: ContainerId,
  { runtime, clock, log }: LastLinesDeps,
  stop: StopSignal,
): Promise<readonly string[]> {
  const giveUp = new AbortController();
  const onStop = (): void => giveUp.abort();
  const timer = clock.setTimer(LAST_LINES_WITHIN_MS, onStop);
  stop.addEventListener('abort', onStop, { once: true });
  const lines: string[] = [];
  const continues = { stdout: false, stderr: false };
  try {
    for await (const { stream, text, partial } of runtime.logs(
      containerId,
      { follow: true, tailLines: ENTRIES },
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
