import { CloudlessError, logFailure, silentLog, type Log } from '../index.js';

it('silentLog drops all lines, also through child logs', () => {
  const child = silentLog.child({ component: 'x' });
  expect([child.error('a'), child.warn('b', { n: 1 }), child.info('c'), child.debug('d')]).toEqual([
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});

it('logFailure logs an error, or a debug line while the disk is full', () => {
  const lines: unknown[] = [];
  const at = (level: string) => (message: string, fields: unknown) =>
    void lines.push([level, message, fields]);
  const log: Log = {
    error: at('error'),
    warn: at('warn'),
    info: at('info'),
    debug: at('debug'),
    child: () => log,
  };
  logFailure(log, 'reconcile failed', new Error('no idea'), { workloadId: 'w' });
  logFailure(log, 'reconcile failed', new CloudlessError('exhausted', 'disk full'), {
    workloadId: 'w',
  });
  expect(lines).toMatchObject([
    ['error', 'reconcile failed', { workloadId: 'w', error: 'no idea' }],
    ['debug', 'reconcile failed', { workloadId: 'w', error: 'disk full' }],
  ]);
});
