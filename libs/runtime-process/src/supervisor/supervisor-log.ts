import { appendFileSync, renameSync, statSync } from 'node:fs';
import type { Clock, Log, LogFields } from '@cloudless/base';

/** One older file is kept beside it. */
const MAX_LOG_BYTES = 1024 * 1024;

/**
 * The supervisor's own log: one JSON object a line, in a file that cannot grow without bound. Never
 * fails its caller.
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
      // A full disk: what runs is more important.
    }
  };
  return {
    error: (message, more) => write('error', message, more),
    warn: (message, more) => write('warn', message, more),
    info: (message, more) => write('info', message, more),
    debug: () => undefined, // nobody watches the supervisor step by step
    child: (more) => createFileLog(file, clock, { ...fields, ...more }),
  };
}
