import { CloudlessError, logFailure, silentLog, type Log } from '../index.js';

describe('silentLog', () => {
  it('drops all lines, also lines of child logs', () => {
    const child = silentLog.child({ component: 'x' });
    expect([
      child.error('a'),
      child.warn('b', { n: 1 }),
      child.info('c'),
      child.debug('d'),
    ]).toEqual([undefined, undefined, undefined, undefined]);
  });
});

describe('logFailure', () => {
  it('logs an error line, but a debug line for a full disk and a lost leadership', () => {
    const lines: unknown[] = [];
    const record = (level: string) => (message: string, fields: unknown) =>
      void lines.push([level, message, fields]);
    const log: Log = {
      error: record('error'),
      warn: record('warn'),
      info: record('info'),
      debug: record('debug'),
      child: () => log,
    };
    logFailure(log, 'reconcile failed', new Error('no idea'), { workloadId: 'w' });
    logFailure(log, 'reconcile failed', new CloudlessError('exhausted', 'disk full'), {
      workloadId: 'w',
    });
    const lost = new CloudlessError('LEADERSHIP_LOST', 'no longer leads');
    logFailure(
      log,
      'reconcile failed',
      new CloudlessError('unavailable', 'ended', { cause: lost }),
    );
    expect(lines).toMatchObject([
      ['error', 'reconcile failed', { workloadId: 'w', error: 'no idea' }],
      ['debug', 'reconcile failed', { workloadId: 'w', error: 'disk full' }],
      ['debug', 'reconcile failed', { error: 'ended' }],
    ]);
  });
});
