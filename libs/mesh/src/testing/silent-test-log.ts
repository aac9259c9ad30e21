import { silentLog, type Log } from '@cloudless/base';

const isVerbose = false;

/** Drops all lines. Change `isVerbose` to see the lines of a failing test. */
export const silentTestLog: Log = isVerbose
  ? {
      error: (message, fields) => process.stderr.write(`${message} ${JSON.stringify(fields)}\n`),
      warn: (message, fields) => process.stderr.write(`${message} ${JSON.stringify(fields)}\n`),
      info: (message, fields) => process.stderr.write(`${message} ${JSON.stringify(fields)}\n`),
      debug: (message, fields) => process.stderr.write(`${message} ${JSON.stringify(fields)}\n`),
      child: () => silentTestLog,
    }
  : silentLog;
