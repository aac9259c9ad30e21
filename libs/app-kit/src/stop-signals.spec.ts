import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from '@jest/globals';

const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
const source = new URL('./stop-signals.ts', import.meta.url).href;

/** A program that prints the first stop signal and never closes. */
const PROGRAM = `
  import { endOnStopSignals } from ${JSON.stringify(source)};
  const untilStopped = endOnStopSignals();
  setInterval(() => undefined, 2 ** 30);
  process.on('SIGUSR2', () => console.log('alive'));
  void untilStopped().then((signal) => console.log(signal));
  console.log('ready');
`;

/**
 * Sends the signals to the program, each after the previous one has had an effect.
 * @returns The lines that the program printed, and the signal that ended the program.
 */
async function sendSignals(
  first: NodeJS.Signals,
  second: NodeJS.Signals,
): Promise<{ readonly lines: readonly string[]; readonly endedBy: NodeJS.Signals | null }> {
  const child = spawn(
    process.execPath,
    ['--import', tsx, '--input-type=module', '--eval', PROGRAM],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const closed = once(child, 'close');
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line);
    if (line === 'ready') child.kill(first);
    else if (line === first) {
      child.kill(second);
      child.kill('SIGUSR2');
    } else child.kill('SIGKILL');
  }
  await closed;
  return { lines, endedBy: child.signalCode };
}

describe('endOnStopSignals', () => {
  it.each([
    { first: 'SIGTERM', second: 'SIGTERM', outcome: 'continues to close' },
    { first: 'SIGINT', second: 'SIGTERM', outcome: 'continues to close' },
    { first: 'SIGTERM', second: 'SIGINT', outcome: 'continues to close' },
    { first: 'SIGINT', second: 'SIGINT', outcome: 'ends' },
  ] as const)(
    'reports $first; the program $outcome when $second follows',
    async ({ first, second, outcome }) => {
      expect(await sendSignals(first, second)).toEqual(
        outcome === 'ends'
          ? { lines: ['ready', first], endedBy: second }
          : { lines: ['ready', first, 'alive'], endedBy: 'SIGKILL' },
      );
    },
  );
});
