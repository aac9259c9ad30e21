import type { LogEntry } from '../gen.js';

/**
 * Returns the bytes by which an entry reduces the window of its log in a log channel: the length of
 * its lines plus an overhead.
 */
export function computeLogCost({ batch, line, raw }: LogEntry): number {
  return (batch?.length ?? 0) + line.length + raw.length + ENTRY_BYTES;
}

/** Overhead of each entry in memory, so that many short entries also exhaust the window. */
const ENTRY_BYTES = 256;
