import type { Log, LogFields } from '@cloudless/base';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createFailureLog } from './failure-log.js';

describe('the log of calls that failed inside', () => {
  function aFailureLog() {
    const clock = new ManualClock();
    const lines: LogFields[] = [];
    const log: Log = { ...silentLog, error: (_message, fields = {}) => void lines.push(fields) };
    return { clock, lines, failed: createFailureLog({ clock, log }, 'call failed inside') };
  }

  it('has a line for each failure, with its cause', () => {
    const { lines, failed } = aFailureLog();
    failed('Get', new Error('disk', { cause: new Error('full') }));
    expect(lines).toEqual([{ rpc: 'Get', error: 'disk', errorName: 'Error', causes: ['Error: full'] }]);
  });

  it('has five lines of one call in a row, then one each 10 s that counts the others', async () => {
    const { clock, lines, failed } = aFailureLog();
    for (let count = 0; count < 100; count += 1) failed('Exec', new Error('odd'));
    failed('Get', new Error('odd'));
    expect(lines.map(({ rpc }) => rpc)).toEqual(['Exec', 'Exec', 'Exec', 'Exec', 'Exec', 'Get']);
    await clock.advance(10_000);
    failed('Exec', new Error('odd'));
    expect(lines.at(-1)).toMatchObject({ rpc: 'Exec', repeated: 95 });
  });
});
