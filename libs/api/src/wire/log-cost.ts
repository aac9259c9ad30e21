import type { LogEntry } from '../gen.js';

/**
 * Bytes that an entry takes of the window of a log in a LogChannel: its lines and a fixed overhead.
 */
export function computeLogCost({ batch, line, raw }: LogEntry): number {
  return (batch?.length ?? 0) + line.length + raw.length + ENTRY_BYTES;
}

const ENTRY_BYTES = 256;
