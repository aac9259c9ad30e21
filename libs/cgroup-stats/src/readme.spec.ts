import { readFileSync } from 'node:fs';
import { computeCapacity, parseCpuMax, ratesBetween, toSample } from './index.js';

/** Runs the example of the README: the code between the two marks is the same text. */
function example(console: { readonly log: (line: unknown) => void }): void {
  // README begin
  // The part of a machine that a group may use: a quota of 2.5 CPUs and no memory limit.
  const GIB = 2 ** 30;
  const quota = parseCpuMax('250000 100000\n');
  const { cpuMillis, memoryIsLimited } = computeCapacity({
    cpuCount: 8,
    cpuQuota: quota,
    memoryTotalBytes: 16 * GIB,
  });
  console.log(`${cpuMillis} m, ${memoryIsLimited}`); // 2500 m, false

  // The use of a container: a cgroup v2 group, read at second 10 and at second 15.
  const unified = (cpuStat: string) => ({ version: 2, texts: { 'cpu.stat': cpuStat } }) as const;
  const memory = {
    version: 2,
    texts: {
      'memory.current': '9000\n',
      'memory.max': 'max\n',
      'memory.stat': 'inactive_file 2000\n',
    },
  } as const;
  const before = toSample('web', 10_000, {
    groups: { unified: unified('usage_usec 3000000\n'), memory },
  });
  const after = toSample('web', 15_000, {
    groups: { unified: unified('usage_usec 4000000\n'), memory },
  });
  console.log(after.sample.memory?.workingSetBytes); // 7000
  console.log(after.sample.memory?.limitBytes); // undefined
  console.log(ratesBetween(before.sample, after.sample).cpuMillis); // 200

  // After a restart the counter is lower, and a file is cut off: the rate is absent, and a problem
  // names the file.
  const restarted = toSample('web', 20_000, {
    groups: {
      unified: unified('usage_usec 5\n'),
      io: { version: 2, texts: { 'io.stat': '8:0 rbytes=' } },
    },
  });
  console.log(ratesBetween(after.sample, restarted.sample).cpuMillis); // undefined
  console.log(restarted.problems[0]?.message); // io.stat:1: "" is not a whole number
  // README end
}

/** Returns the code between the marks of this file without its indentation. */
function readExampleCode(): string {
  const source = readFileSync(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const code = source.split('  // README begin\n')[1]?.split('  // README end\n')[0] ?? '';
  return code.replace(/^ {2}/gm, '');
}

describe('README of cgroup-stats', () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const block = /```ts\n(?<code>.*?)```/s.exec(readme)?.groups?.['code'] ?? '';
  const body = block.replace(/^import .*\n/gm, '').trimStart();

  it('contains the code of this spec', () => {
    expect(body).not.toBe('');
    expect(body).toBe(readExampleCode());
  });

  it('shows the output that its code prints', () => {
    const printed: string[] = [];
    example({ log: (line) => void printed.push(String(line)) });
    const documented = [...body.matchAll(/^console\.log\(.*\); \/\/ (?<output>.*)$/gm)].map(
      (match) => match.groups?.['output'],
    );
    expect(printed).toEqual(documented);
    expect(printed).toHaveLength(6);
  });
});
