import { appendFileSync, renameSync, statSync } from 'node:fs';
import type { Clock, Log, LogFields } from '@cloudless/base';

/** Size in bytes above which the log is rotated. One older file is kept. */
const MAX_LOG_BYTES = 1024 * 1024;

/**
 * Creates the log of a background program: one JSON object per line, in a file of bounded size,
 * without debug messages. Errors of the disk are ignored.
 * @param fields - Added to every message.
 */
export function createFileLog(file: string, clock: Clock, fields: LogFields = {}): Log {
  const write = (level: string, message: string, more: LogFields = {}): void => {
    const line = JSON.stringify({
      time: new Date(clock.wallTime()).toISOString(),
      level,
      message,
      ...fields,
      ...more,
    });
    try {
      if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > MAX_LOG_BYTES)
        renameSync(file, `${file}.1`);
      appendFileSync(file, `${line}\n`, { mode: 0o600 });
    } catch {
      // The disk is full: what the program does is more important.
    }
  };
  return {
    error: (message, more) => write('error', message, more),
    warn: (message, more) => write('warn', message, more),
    info: (message, more) => write('info', message, more),
    debug: () => undefined, // such a log has no debug level
    child: (more) => createFileLog(file, clock, { ...fields, ...more }),
  };
}
