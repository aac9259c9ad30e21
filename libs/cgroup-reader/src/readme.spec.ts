import { readFileSync } from 'node:fs';
import { ManualClock } from '@cloudless/base/testing';
import { ratesBetween } from '@cloudless/cgroup-stats';
import { recordedGroups } from '@cloudless/cgroup-stats/testing';
import { createContainerReader, createHostReader, type StatisticsFiles } from './index.js';

/** Runs the example of the README: the code between the two marks is the same text. */
async function example(
  clock: ManualClock,
  files: StatisticsFiles,
  console: { readonly log: (line: unknown) => void },
): Promise<void> {
  // README begin
  // The machine. CPU use needs two readings.
  const host = createHostReader({ clock, dataDirectory: '/var/lib/cloudless' });
  const capacity = await host.readCapacity();
  console.log(Object.keys(capacity).join(' ')); // cpuMillis memoryBytes storageBytes cgroupLayout
  console.log(Object.keys(await host.readUsage()).join(' ')); // memoryBytes storageBytes inodes
  await clock.advance(10_000);
  console.log(Object.keys(await host.readUsage()).join(' ')); // cpuMillis memoryBytes storageBytes inodes

  // One container, identified by a process. Omit `files` to read the files of this machine.
  const containers = createContainerReader({ clock, files });
  const before = await containers.read({ pid: 4268, ownNetwork: true });
  await clock.advance(10_000);
  const after = await containers.read({ pid: 4268, ownNetwork: true });
  if (before === undefined || after === undefined) return; // the container is gone
  console.log(after.sample.memory?.limitBytes); // 268435456
  console.log(after.sample.cpu?.throttling?.throttledPeriods); // 300
  console.log(after.sample.pressure?.io?.some?.avg10Percent); // 1.25
  console.log(ratesBetween(before.sample, after.sample).cpuMillis); // 0
  console.log(after.problems.length); // 0
  // README end
}

/** Returns the code between the marks of this file without its indentation. */
function readExampleCode(): string {
  const source = readFileSync(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const code = source.split('  // README begin\n')[1]?.split('  // README end\n')[0] ?? '';
  return code.replace(/^ {2}/gm, '');
}

describe('README of cgroup-reader', () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const block = /```ts\n(?<code>.*?)```/s.exec(readme)?.groups?.['code'] ?? '';
  const body = block.replace(/^import .*\n/gm, '').trimStart();

  it('contains the code of this spec', () => {
    expect(body).not.toBe('');
    expect(body).toBe(readExampleCode());
  });

  it('shows the output that its code prints', async () => {
    const printed: string[] = [];
    const { files } = recordedGroups.v2Kernel68;
    const recorded: StatisticsFiles = { readText: (path) => Promise.resolve(files[path]) };
    await example(new ManualClock(), recorded, { log: (line) => void printed.push(String(line)) });
    const documented = [...body.matchAll(/^console\.log\(.*\); \/\/ (?<output>.*)$/gm)].map(
      (match) => match.groups?.['output'],
    );
    expect(printed).toEqual(documented);
    expect(printed).toHaveLength(8);
  });
});
