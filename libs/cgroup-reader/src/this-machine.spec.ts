import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { ManualClock } from '@cloudless/base/testing';
import { ratesBetween, type ContainerSample } from '@cloudless/cgroup-stats';
import {
  createContainerReader,
  hostFiles,
  type ContainerReader,
  type StatisticsFiles,
} from './index.js';
import { createOwnGroup } from './testing/own-group.js';

const MIB = 1_048_576;
const PERIOD_MS = 100;
const createGroup = () =>
  createOwnGroup(`cloudless-spec-${process.pid}`, {
    cpuMillis: 200,
    memoryBytes: 64 * MIB,
    pids: 50,
  });

/** Jest needs to know before the run whether tests are skipped, so create a group once on load. */
const refusal = ((made) => (typeof made === 'string' ? made : made.remove()))(createGroup());
const why = refusal === undefined ? '' : ` (skipped: ${refusal})`;
const onThisMachine = refusal === undefined ? it : it.skip;

/** Waits for a line on stdin, then computes forever and prints a line after each piece of work. */
const BUSY = 'read go; i=0; while :; do i=$((i+1)); [ $((i % 20000)) -eq 0 ] && echo $i; done';

/** Hides v1, so that the v2 hierarchy counts CPU time. */
const withoutV1: StatisticsFiles = {
  async readText(path, maxBytes) {
    const text = await hostFiles.readText(path, maxBytes);
    return path === '/proc/self/mountinfo' ? text?.replaceAll(/^.* - cgroup .*\n/gm, '') : text;
  },
};

describe('ContainerReader on this machine', () => {
  // Time is measured in the kernel's bandwidth periods of 100 ms, so the load of the machine does
  // not matter. In each throttled period the quota was used up, and no period can use more than the
  // quota.
  onThisMachine(
    `measures 200 m of a busy loop, by v1 and by v2${why}`,
    async () => {
      const group = createGroup();
      if (typeof group === 'string') throw new Error(group);
      const loop = spawn('sh', ['-c', BUSY], { stdio: ['pipe', 'pipe', 'ignore'] });
      const ended = once(loop, 'exit');
      try {
        const pid = loop.pid ?? 0;
        group.add(pid);
        loop.stdin.write('go\n');
        const clock = new ManualClock();
        const readers = [
          createContainerReader({ clock }),
          createContainerReader({ clock, files: withoutV1 }),
        ];
        const sampleAll = () => Promise.all(readers.map((reader) => sampleOf(reader, pid)));
        const first = await sampleAll();
        let last = first;
        for await (const _ of createInterface({ input: loop.stdout })) {
          last = await sampleAll();
          if (throttled(last) - throttled(first) >= 40n) break;
        }
        const { cpu, memory, pids, pressure } = last[0] ?? first[0]!;
        expect(cpu).toMatchObject({ limitMillis: 200 });
        expect(memory).toMatchObject({ limitBytes: 64 * MIB });
        expect(memory?.usageBytes).toBeGreaterThan(0);
        expect(memory?.workingSetBytes).toBeLessThanOrEqual(memory?.usageBytes ?? 0);
        expect(pids).toEqual({ current: 1, limit: 50 });
        if (pressure?.cpu !== undefined) expect(pressure.cpu.some?.totalNsec).toBeGreaterThan(0n);

        const periods = Number(
          (last[0]?.cpu?.throttling?.periods ?? 0n) - (first[0]?.cpu?.throttling?.periods ?? 0n),
        );
        const fully = Number(throttled(last) - throttled(first)) / periods;
        first.forEach((before, index) => {
          const after = last[index] ?? before;
          if (before.cpu === undefined) return; // v2 is not mounted
          const { cpuMillis } = ratesBetween(
            { ...before, atMs: 0 },
            { ...after, atMs: periods * PERIOD_MS },
          );
          expect(cpuMillis).toBeLessThanOrEqual(220);
          expect(cpuMillis).toBeGreaterThanOrEqual(180 * fully);
        });
      } finally {
        loop.kill('SIGKILL');
        await ended;
        group.remove();
      }
    },
    120_000, // takes 4 s on a machine that has 200 m to give
  );

  it('reads its own process without errors and without attributing its shared group to it', async () => {
    const result = await createContainerReader({ clock: new ManualClock() }).read({
      pid: process.pid,
      ownNetwork: false,
    });
    expect(result?.sample).toMatchObject({
      source: expect.stringMatching(`^${process.pid}@`) as string,
    });
    expect(result?.sample).not.toHaveProperty('memory');
    expect(result?.problems).toEqual([]);
  });
});

const throttled = ([sample]: readonly ContainerSample[]): bigint =>
  sample?.cpu?.throttling?.throttledPeriods ?? 0n;

async function sampleOf(reader: ContainerReader, pid: number): Promise<ContainerSample> {
  const result = await reader.read({ pid, ownNetwork: false });
  expect(result?.problems).toEqual([]);
  return result!.sample;
}
