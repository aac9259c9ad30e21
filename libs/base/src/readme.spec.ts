import { readFile } from 'node:fs/promises';
import {
  StoppedError,
  backoffDelayMs,
  durationField,
  parseConfig,
  sleep,
  wholeNumberField,
  type Clock,
  type StopSignal,
} from './index.js';
import { ManualClock, settle } from './testing/index.js';

it('README of base shows an example that runs with these results', async () => {
  // <example>
  interface Settings {
    readonly port: number;
    readonly firstMs: number;
  }
  const port = wholeNumberField(8080, 1, 65_535);
  const fields = { port, firstMs: durationField(100, 1, 60_000) };
  const settings = parseConfig<Settings>(fields, [
    { source: 'cloudless.yaml', values: { firstMs: '250ms' } },
    { source: 'command line', values: { port: '9090' } },
  ]);
  expect(settings).toEqual({ port: 9090, firstMs: 250 });

  async function retry(clock: Clock, signal: StopSignal): Promise<void> {
    for (let failures = 1; ; failures += 1) {
      const delayMs = backoffDelayMs({ firstMs: settings.firstMs, maxMs: 1_000 }, failures);
      await sleep(clock, delayMs, signal);
      attemptTimes.push(clock.now());
    }
  }
  const attemptTimes: number[] = [];
  const stop = new AbortController();
  const clock = new ManualClock(); // time moves only when the test advances the clock
  const retrying = retry(clock, stop.signal);
  await clock.advance(3_000);
  expect(attemptTimes).toEqual([250, 750, 1_750, 2_750]);
  stop.abort();
  await expect(retrying).rejects.toBeInstanceOf(StoppedError);
  // </example>
  await settle();
  expect(clock.pendingTimers).toBe(0);
});

it('README of base contains the example that this spec runs', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
