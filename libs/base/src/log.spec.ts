import { silentLog } from './index.js';

it('silentLog takes everything, says nothing, and its children are silent too', () => {
  const child = silentLog.child({ component: 'x' });
  expect([child.error('a'), child.warn('b', { n: 1 }), child.info('c'), child.debug('d')]).toEqual([
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});
