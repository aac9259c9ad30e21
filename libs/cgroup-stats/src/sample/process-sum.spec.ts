import fc from 'fast-check';
import { parseProcStat, ratesBetween, sumProcesses, type ProcessTexts } from '../index.js';

/** CPU time in ticks. Default 0. */
interface Ticks {
  readonly user?: number;
  readonly system?: number;
  readonly childUser?: number;
  readonly childSystem?: number;
}

const stat = ({ user = 0, system = 0, childUser = 0, childSystem = 0 }: Ticks): string =>
  `7 (sh) S 1 7 7 0 -1 0 0 0 0 0 ${user} ${system} ${childUser} ${childSystem} 20 0 1 0 99 0 1`;
const status = (residentKib: number, threads = 1): string =>
  `VmRSS: ${residentKib} kB\nRssAnon: ${residentKib} kB\nRssFile: 0 kB\nRssShmem: 0 kB\nVmSwap: 0 kB\nThreads: ${threads}\n`;
const io = (read: number, write: number): string => `read_bytes: ${read}\nwrite_bytes: ${write}\n`;
const sampleOf = (...processes: readonly ProcessTexts[]) => sumProcesses('7@99', 5, processes);

describe('sumProcesses', () => {
  it.each([
    {
      name: 'returns the sum over processes including their reaped children',
      processes: [
        {
          stat: stat({ user: 1, system: 2, childUser: 3, childSystem: 4 }),
          status: status(10, 2),
          io: io(1, 2),
        },
        { stat: stat({ user: 10 }), status: status(5), io: io(10, 20) },
      ],
      expected: {
        cpu: { usageNsec: 200_000_000n, userNsec: 140_000_000n, systemNsec: 60_000_000n },
        memory: {
          usageBytes: 15_360,
          workingSetBytes: 15_360,
          fileBytes: 0,
          anonBytes: 15_360,
          swapBytes: 0,
        },
        io: { readBytes: 11n, writeBytes: 22n },
        pids: { current: 3 },
      },
    },
    {
      name: 'omits block I/O when one process is not readable',
      processes: [
        { stat: stat({}), status: status(1), io: io(1, 2) },
        { stat: stat({}), status: status(1) },
      ],
      expected: {
        cpu: { usageNsec: 0n, userNsec: 0n, systemNsec: 0n },
        memory: {
          usageBytes: 2_048,
          workingSetBytes: 2_048,
          fileBytes: 0,
          anonBytes: 2_048,
          swapBytes: 0,
        },
        pids: { current: 2 },
      },
    },
    {
      name: 'includes the CPU time of a process that has ended before its other files were read',
      processes: [
        { stat: stat({ user: 1 }), status: status(1), io: io(1, 2) },
        { stat: stat({ user: 2 }) },
      ],
      expected: {
        cpu: { usageNsec: 30_000_000n, userNsec: 30_000_000n, systemNsec: 0n },
        memory: {
          usageBytes: 1_024,
          workingSetBytes: 1_024,
          fileBytes: 0,
          anonBytes: 1_024,
          swapBytes: 0,
        },
        io: { readBytes: 1n, writeBytes: 2n },
        pids: { current: 1 },
      },
    },
    {
      name: 'omits anonymous and file memory before kernel 4.5',
      processes: [{ stat: stat({}), status: 'VmRSS: 1 kB\nThreads: 1\n' }],
      expected: {
        cpu: { usageNsec: 0n, userNsec: 0n, systemNsec: 0n },
        memory: { usageBytes: 1_024, workingSetBytes: 1_024, swapBytes: 0 },
        pids: { current: 1 },
      },
    },
  ])('$name', ({ processes, expected }) => {
    expect(sampleOf(...processes)).toEqual({
      sample: { source: '7@99', origin: 'processes', atMs: 5, ...expected },
      problems: [],
    });
  });

  it.each([
    { name: 'stat', damaged: { stat: 'x' }, kept: ['memory', 'io', 'pids'] },
    { name: 'status', damaged: { status: 'Threads: x\n' }, kept: ['cpu', 'io'] },
    { name: 'io', damaged: { io: 'read_bytes: 1\n' }, kept: ['cpu', 'memory', 'pids'] },
  ])(
    'omits only the parts of a malformed $name file, and names the file',
    ({ name, damaged, kept }) => {
      const sound = { stat: stat({}), status: status(1), io: io(0, 0) };
      const { sample, problems } = sampleOf(sound, { ...sound, ...damaged });
      expect(Object.keys(sample)).toEqual(['source', 'origin', 'atMs', ...kept]);
      expect(problems.map(({ file }) => file)).toEqual([`/proc/<pid>/${name}`]);
    },
  );

  it('returns the same CPU time after a child has ended and was reaped', () => {
    const arbTicks = fc.nat(1_000_000);
    fc.assert(
      fc.property(arbTicks, arbTicks, arbTicks, (parent, user, system) => {
        const before = sampleOf({ stat: stat({ user: parent }) }, { stat: stat({ user, system }) });
        const after = sampleOf({
          stat: stat({ user: parent, childUser: user, childSystem: system }),
        });
        expect(after.sample.cpu).toEqual(before.sample.cpu);
      }),
    );
  });

  it('returns samples without a negative rate, whatever processes start or end in between', () => {
    const arbProcessTicks = fc.record({
      user: fc.nat(1_000),
      system: fc.nat(1_000),
      childUser: fc.nat(1_000),
      childSystem: fc.nat(1_000),
    });
    const arbProcess = fc.record({
      ticks: arbProcessTicks,
      read: fc.nat(1_000),
      write: fc.nat(1_000),
    });
    const arbProcesses = fc.array(arbProcess, { minLength: 1, maxLength: 5 });
    const toTexts = ({
      ticks,
      read,
      write,
    }: {
      ticks: Ticks;
      read: number;
      write: number;
    }): ProcessTexts => ({
      stat: stat(ticks),
      status: status(1),
      io: io(read, write),
    });
    fc.assert(
      fc.property(arbProcesses, arbProcesses, (first, second) => {
        const before = sumProcesses('7@99', 1_000, first.map(toTexts)).sample;
        const after = sumProcesses('7@99', 2_000, second.map(toTexts)).sample;
        for (const rate of Object.values(ratesBetween(before, after)))
          expect(rate).toBeGreaterThanOrEqual(0);
      }),
    );
  });
});

describe('parseProcStat', () => {
  it('parses a program name that contains brackets', () =>
    expect(parseProcStat(stat({}).replace('sh', 'x 1 2) (y')).sessionPid).toBe(7));
});
