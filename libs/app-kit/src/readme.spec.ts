import { readFile } from 'node:fs/promises';
import { randomHex, sleep } from '@cloudless/base';
import { systemClock, systemRandom } from './index.js';

it('README of app-kit shows an example that runs with these results', async () => {
  // <example>
  const started = systemClock.now();
  await sleep(systemClock, 2);
  expect(systemClock.now()).toBeGreaterThan(started);

  // Node's own timers end at 24.8 days
  const inAMonth = systemClock.setTimer(30 * 86_400_000, () => undefined);
  inAMonth.cancel();

  expect(randomHex(systemRandom, 8)).toMatch(/^[0-9a-f]{16}$/);
  // </example>
});

it('README of app-kit contains the example that this spec runs', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
