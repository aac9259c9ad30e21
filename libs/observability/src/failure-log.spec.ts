import type { Log, LogFields } from '@cloudless/base';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createFailureLog } from './failure-log.js';

describe('createFailureLog', () => {
  function aFailureLog() {
    const clock = new ManualClock();
    const lines: LogFields[] = [];
    const log: Log = { ...silentLog, error: (_message, fields = {}) => void lines.push(fields) };
    return {
      clock,
      lines,
      logFailure: createFailureLog({ clock, log }, 'call logFailure with an internal error'),
    };
  }

  it('writes a line with the cause of a failure', () => {
    const { lines, logFailure } = aFailureLog();
    logFailure('Get', new Error('disk', { cause: new Error('full') }));
    expect(lines).toEqual([
      { rpc: 'Get', error: 'disk', errorName: 'Error', causes: ['Error: full'] },
    ]);
  });

  it('writes at most five lines of one RPC, then one line each 10 s with the number of failures in between', async () => {
    const { clock, lines, logFailure } = aFailureLog();
    for (let count = 0; count < 100; count += 1) logFailure('Exec', new Error('odd'));
    logFailure('Get', new Error('odd'));
    expect(lines.map(({ rpc }) => rpc)).toEqual(['Exec', 'Exec', 'Exec', 'Exec', 'Exec', 'Get']);
    await clock.advance(10_000);
    logFailure('Exec', new Error('odd'));
    expect(lines.at(-1)).toMatchObject({ rpc: 'Exec', repeated: 95 });
  });
});
