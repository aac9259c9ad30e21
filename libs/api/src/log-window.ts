import type { LogEntry } from './gen.js';

/**
 * How much of the window of a log in a LogChannel an entry takes, bytes: its lines, and something
 * for itself.
 */
export function logCostOf({ batch, line, raw }: LogEntry): number {
  return (batch?.length ?? 0) + line.length + raw.length + ENTRY_BYTES;
}

const ENTRY_BYTES = 256;
