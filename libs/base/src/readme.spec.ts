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

it('does what the README shows', async () => {
  // <example>
  interface Settings {
    readonly port: number;
    readonly firstMs: number;
  }
  const fields = {
    port: wholeNumberField(8080, 1, 65_535),
    firstMs: durationField(100, 1, 60_000),
  };
  const settings = parseConfig<Settings>(fields, [
    { source: 'cloudless.yaml', values: { firstMs: '250ms' } },
    { source: 'command line', values: { port: '9090' } },
  ]);
  expect(settings).toEqual({ port: 9090, firstMs: 250 });

  async function knock(clock: Clock, signal: StopSignal): Promise<void> {
    for (let failures = 1; ; failures += 1) {
      await sleep(
        clock,
        backoffDelayMs({ firstMs: settings.firstMs, maxMs: 1_000 }, failures),
        signal,
      );
      knocks.push(clock.now());
    }
  }
  const knocks: number[] = [];
  const stop = new AbortController();
  const clock = new ManualClock(); // nothing happens until the test moves it
  const knocking = knock(clock, stop.signal);
  await clock.advance(3_000);
  expect(knocks).toEqual([250, 750, 1_750, 2_750]);
  stop.abort();
  await expect(knocking).rejects.toBeInstanceOf(StoppedError);
  // </example>
  await settle();
  expect(clock.pendingTimers).toBe(0);
});

it('is what the README shows', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
