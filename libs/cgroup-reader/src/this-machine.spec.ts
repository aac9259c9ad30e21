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
import { createTestCgroup } from './testing/test-cgroup.js';

const MIB = 1_048_576;
/** Bandwidth period of the kernel. */
const PERIOD_MS = 100;
const createGroup = () =>
  createTestCgroup(`cloudless-spec-${process.pid}`, {
    cpuMillis: 200,
    memoryBytes: 64 * MIB,
    pids: 50,
  });

/**
 * Reason why this user cannot create cgroups; undefined when it can. Jest must know before the run
 * which tests are skipped, so one group is created and removed when this file is loaded.
 */
const skipReason = ((group) => (typeof group === 'string' ? group : group.remove()))(createGroup());
const skipNote = skipReason === undefined ? '' : ` (skipped: ${skipReason})`;
const itWithCgroups = skipReason === undefined ? it : it.skip;

/**
 * Shell script that waits for a line on stdin, then computes forever and prints a line at times.
 */
const BUSY = 'read go; i=0; while :; do i=$((i+1)); [ $((i % 20000)) -eq 0 ] && echo $i; done';

/** Files of this machine without the v1 hierarchies, so that CPU time is read from v2. */
const withoutV1: StatisticsFiles = {
  async readText(path, maxBytes) {
    const text = await hostFiles.readText(path, maxBytes);
    return path === '/proc/self/mountinfo' ? text?.replaceAll(/^.* - cgroup .*\n/gm, '') : text;
  },
};

describe('ContainerReader on this machine', () => {
  // The test counts bandwidth periods of 100 ms instead of wall-clock time, so the load of the
  // machine does not matter: a throttled period has used the whole quota, and no period can use
  // more.
  itWithCgroups(
    `measures about 200 m for a busy loop with a quota of 200 m, with v1 and with v2${skipNote}`,
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
        const throttledShare = Number(throttled(last) - throttled(first)) / periods;
        first.forEach((before, index) => {
          const after = last[index] ?? before;
          if (before.cpu === undefined) return; // v2 is not mounted
          const { cpuMillis } = ratesBetween(
            { ...before, atMs: 0 },
            { ...after, atMs: periods * PERIOD_MS },
          );
          expect(cpuMillis).toBeLessThanOrEqual(220);
          expect(cpuMillis).toBeGreaterThanOrEqual(180 * throttledShare);
        });
      } finally {
        loop.kill('SIGKILL');
        await ended;
        group.remove();
      }
    },
    120_000, // takes 4 s on a machine with 200 m of idle CPU time
  );

  it('omits the values of the group that a container shares with the reading process', async () => {
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

/** Throttled periods of the first sample. */
const throttled = ([sample]: readonly ContainerSample[]): bigint =>
  sample?.cpu?.throttling?.throttledPeriods ?? 0n;

async function sampleOf(reader: ContainerReader, pid: number): Promise<ContainerSample> {
  const result = await reader.read({ pid, ownNetwork: false });
  expect(result?.problems).toEqual([]);
  return result!.sample;
}
