import fc from 'fast-check';
import { ManualClock } from '@cloudless/base/testing';
import type { ContainerSample, SampleResult } from '@cloudless/cgroup-stats';
import { recordedGroups, type RecordedGroup } from '@cloudless/cgroup-stats/testing';
import { createContainerReader, type ContainerTarget, type StatisticsFiles } from './index.js';

const { hybrid618, v1Kernel54, v2Kernel54, v2Kernel510, v2Kernel515, v2Kernel61, v2Kernel68 } =
  recordedGroups;

/**
 * Recorded files as a file system. `onRead` is called before each read and may change the files.
 */
function filesOf(
  files: Readonly<Record<string, string>>,
  onRead: (path: string) => void = () => undefined,
): StatisticsFiles {
  return {
    readText: (path) => {
      onRead(path);
      return Promise.resolve(Object.hasOwn(files, path) ? files[path] : undefined);
    },
  };
}

const read = (
  files: Readonly<Record<string, string>>,
  target: ContainerTarget,
): Promise<SampleResult | undefined> =>
  createContainerReader({ clock: new ManualClock(), files: filesOf(files) }).read(target);

const MIB = 1_048_576;

/** CPU values that the written recordings of every kernel contain. */
const CPU = {
  usageNsec: 7_340_000_000n,
  userNsec: 5_240_000_000n,
  systemNsec: 2_100_000_000n,
  throttling: { periods: 1_200n, throttledPeriods: 300n, throttledNsec: 4_500_000_000n },
};
const MEMORY = {
  usageBytes: 135 * MIB,
  workingSetBytes: 75 * MIB,
  fileBytes: 80 * MIB,
  anonBytes: 48 * MIB,
};
const IO = {
  readBytes: 91_889_664n,
  writeBytes: 613_781_504n,
  readOperations: 9_142n,
  writeOperations: 1_605n,
};
const NETWORK = {
  receivedBytes: 7_340_032n,
  receivedPackets: 6_100n,
  receivedErrors: 1n,
  receivedDropped: 2n,
  sentBytes: 94_371_840n,
  sentPackets: 9_400n,
  sentErrors: 3n,
  sentDropped: 4n,
};
const aStall = (
  avg10Percent: number,
  avg60Percent: number,
  avg300Percent: number,
  totalNsec: bigint,
) => ({
  avg10Percent,
  avg60Percent,
  avg300Percent,
  totalNsec,
});
const aFullStall = (totalNsec: bigint) => aStall(0.1, 0.05, 0.01, totalNsec);
const PRESSURE = {
  cpu: { some: aStall(2.5, 0.25, 0.05, 1_500_000_000n), full: aFullStall(500_000_000n) },
  memory: { some: aStall(0, 0.25, 0.05, 0n), full: aFullStall(0n) },
  io: { some: aStall(1.25, 0.25, 0.05, 900_000_000n), full: aFullStall(300_000_000n) },
};
/** Values of a recording of v2 from kernel 5.15 on. */
const V2 = {
  cpu: { ...CPU, limitMillis: 500 },
  memory: { ...MEMORY, limitBytes: 256 * MIB, swapBytes: MIB, swapLimitBytes: 0 },
  io: IO,
  network: NETWORK,
  pids: { current: 7, limit: 512 },
  pressure: PRESSURE,
};
const WITH_PEAK = { ...V2, memory: { ...V2.memory, peakBytes: 190 * MIB } };
const CPU_SOME_ONLY = { ...PRESSURE, cpu: { some: PRESSURE.cpu.some } };

describe('ContainerReader.read with recorded files', () => {
  it.each<{
    recorded: RecordedGroup;
    expected: Omit<ContainerSample, 'source' | 'origin' | 'atMs'>;
  }>([
    { recorded: v2Kernel54, expected: { ...V2, pressure: CPU_SOME_ONLY } },
    {
      recorded: v2Kernel510,
      expected: {
        ...V2,
        memory: { ...MEMORY, swapBytes: MIB },
        pids: { current: 7 },
        pressure: CPU_SOME_ONLY,
      },
    },
    { recorded: v2Kernel515, expected: V2 },
    { recorded: v2Kernel61, expected: WITH_PEAK },
    { recorded: v2Kernel68, expected: WITH_PEAK },
    {
      recorded: v1Kernel54,
      expected: {
        cpu: CPU,
        memory: { ...MEMORY, peakBytes: 190 * MIB },
        io: IO,
        network: NETWORK,
        pids: { current: 7 },
      },
    },
    {
      recorded: hybrid618,
      expected: {
        cpu: {
          usageNsec: 920_294_183n,
          userNsec: 947_972_108n,
          systemNsec: 32_000_000n,
          throttling: { periods: 46n, throttledPeriods: 44n, throttledNsec: 3_019_519_984n },
          limitMillis: 200,
        },
        memory: {
          usageBytes: 26_886_144,
          workingSetBytes: 675_840,
          limitBytes: 64 * MIB,
          peakBytes: 28_143_616,
          fileBytes: 26_312_704,
          anonBytes: 151_552,
          swapBytes: 0,
        },
        io: {
          readBytes: 50_429_952n,
          writeBytes: 26_230_784n,
          readOperations: 52n,
          writeOperations: 54n,
        },
        network: {
          receivedBytes: 516n,
          receivedPackets: 6n,
          receivedErrors: 0n,
          receivedDropped: 0n,
          sentBytes: 516n,
          sentPackets: 6n,
          sentErrors: 0n,
          sentDropped: 0n,
        },
        pids: { current: 2, limit: 100 },
        pressure: {
          cpu: {
            some: aStall(14.99, 2.9, 0.61, 2_625_545_000n),
            full: aStall(14.99, 2.9, 0.61, 2_623_231_000n),
          },
          memory: { some: aStall(0, 0, 0, 0n), full: aStall(0, 0, 0, 0n) },
          io: { some: aStall(0, 0, 0, 19_494_000n), full: aStall(0, 0, 0, 19_467_000n) },
        },
      },
    },
  ])('returns the recorded values of $recorded.name', async ({ recorded, expected }) => {
    const result = await read(recorded.files, { pid: recorded.pid, ownNetwork: true });
    expect(result?.problems).toEqual([]);
    const [origin] = recorded.name.split(',');
    expect(result?.sample).toEqual({
      source: expect.stringContaining(`${recorded.pid}@`) as string,
      origin,
      atMs: 0,
      ...expected,
    });
  });

  it.each(Object.values(recordedGroups))(
    'returns the same values for the path of the group as for a process: $name',
    async ({ files, pid }) => {
      const [, path] = /^(?:0:|\d+:pids):(.*)$/m.exec(files[`/proc/${pid}/cgroup`] ?? '') ?? [];
      const byPid = await read(files, { pid, ownNetwork: false });
      const byPath = await read(files, { cgroupPath: path ?? '', ownNetwork: false });
      const byBoth = await read(files, { pid, cgroupPath: path ?? '', ownNetwork: false });
      expect(byPath?.sample).toEqual({
        ...byPid?.sample,
        source: expect.not.stringContaining('@') as string,
      });
      expect(byBoth).toEqual(byPid);
    },
  );
});

describe('ContainerReader.read', () => {
  const { files, pid } = v2Kernel68;
  const GROUP = '/sys/fs/cgroup/cloudless/3f1c9e0a';

  it('omits network use without a network namespace of its own or without a process', async () => {
    expect((await read(files, { pid, ownNetwork: false }))?.sample).not.toHaveProperty('network');
    expect(
      (await read(files, { cgroupPath: '/cloudless/3f1c9e0a', ownNetwork: true }))?.sample,
    ).not.toHaveProperty('network');
  });

  it.each([
    { name: 'shared with this process', path: '/system.slice/cloudless-agent.service' },
    { name: "of the hierarchy's root", path: '/' },
    { name: 'outside of the cgroup namespace', path: '/../other' },
  ])('omits values of a group $name', async ({ path }) => {
    const shared: Record<string, string> = {};
    for (const [file, text] of Object.entries(files))
      shared[file.replace(GROUP, `/sys/fs/cgroup${path}`)] = text;
    shared[`/proc/${pid}/cgroup`] = `0::${path}\n`;
    const result = await read(shared, { pid, ownNetwork: true });
    expect(Object.keys(result?.sample ?? {})).toEqual(['source', 'atMs', 'network']);
  });

  it('returns undefined when the process or the group does not exist', async () => {
    expect(await read({}, { pid, ownNetwork: true })).toBeUndefined();
    expect(
      await read({ ...files, [`/proc/${pid}/stat`]: '' }, { pid: pid + 1, ownNetwork: true }),
    ).toBeUndefined();
    expect(await read(files, { cgroupPath: '/cloudless/none', ownNetwork: true })).toBeUndefined();
  });

  it.each([
    { name: 'ends', stat: undefined },
    {
      name: 'is replaced by another process with the same pid',
      stat: (files[`/proc/${pid}/stat`] ?? '').replace(' 1661752 ', ' 1661753 '),
    },
  ])('returns undefined when the process $name during the read', async ({ stat }) => {
    const changing: Record<string, string> = { ...files };
    const onRead = (path: string): void => {
      if (!path.endsWith('/memory.stat')) return;
      if (stat === undefined) delete changing[`/proc/${pid}/stat`];
      else changing[`/proc/${pid}/stat`] = stat;
    };
    const reader = createContainerReader({
      clock: new ManualClock(),
      files: filesOf(changing, onRead),
    });
    expect(await reader.read({ pid, ownNetwork: true })).toBeUndefined();
  });

  it('returns different sources for two containers that had the same pid one after the other', async () => {
    const later = {
      ...files,
      [`/proc/${pid}/stat`]: (files[`/proc/${pid}/stat`] ?? '').replace(' 1661752 ', ' 1661753 '),
    };
    const [first, second] = [
      await read(files, { pid, ownNetwork: true }),
      await read(later, { pid, ownNetwork: true }),
    ];
    expect(first?.sample.source).not.toBe(second?.sample.source);
  });

  it('returns the time in the middle of the read of the CPU counter', async () => {
    const clock = new ManualClock();
    let waited = Promise.resolve();
    const onRead = (path: string): void => {
      const takesMs = path.endsWith('/cpu.stat') ? 10 : path.endsWith('/memory.stat') ? 1_000 : 0;
      if (takesMs > 0) waited = waited.then(() => clock.advance(takesMs));
    };
    const slow = filesOf(files, onRead);
    const reader = createContainerReader({
      clock,
      files: {
        readText: async (path, maxBytes) => (
          await slow.readText(path, maxBytes),
          await waited,
          files[path]
        ),
      },
    });
    expect((await reader.read({ pid, ownNetwork: true }))?.sample.atMs).toBe(5);
    expect(clock.now()).toBe(1_010);
  });

  it('finds a hierarchy that was mounted later, and reads the mounts again only for that', async () => {
    const paths: string[] = [];
    const changing: Record<string, string> = { ...files, '/proc/self/mountinfo': '' };
    const reader = createContainerReader({
      clock: new ManualClock(),
      files: filesOf(changing, (path) => void paths.push(path)),
    });
    expect((await reader.read({ pid, ownNetwork: false }))?.sample).not.toHaveProperty('cpu');
    changing['/proc/self/mountinfo'] = files['/proc/self/mountinfo'] ?? '';
    expect((await reader.read({ pid, ownNetwork: false }))?.sample).toHaveProperty('cpu');
    const before = paths.length;
    expect((await reader.read({ pid, ownNetwork: false }))?.sample).toHaveProperty('cpu');
    expect(paths.slice(before)).not.toContain('/proc/self/mountinfo');
  });

  it('omits only the part of a malformed file and names the file', async () => {
    const damaged = { ...files, [`${GROUP}/io.stat`]: 'sda rbytes=1\n' };
    const result = await read(damaged, { pid, ownNetwork: true });
    expect(result?.problems.map(({ message }) => message)).toEqual([
      'io.stat:1: "sda" is not a device number such as 8:0',
    ]);
    const { io: _, ...others } = WITH_PEAK;
    expect(result?.sample).toMatchObject(others);
    expect(result?.sample).not.toHaveProperty('io');
  });

  it.each([
    {
      target: {},
      message: 'name a container by the pid of a process in it, the path of its group, or both',
    },
    {
      target: { pid: 0 },
      message: 'pid: 0 is not a process id; process ids are whole numbers above 0',
    },
    {
      target: { pid: 1.5 },
      message: 'pid: 1.5 is not a process id; process ids are whole numbers above 0',
    },
    ...['', 'a', '/', '//', '/a/../..', '/a\0b'].map((cgroupPath) => ({
      target: { cgroupPath },
      message: `cgroupPath: ${JSON.stringify(cgroupPath)} is not the path of a group; a path begins with "/", goes below the root and has no ".."`,
    })),
  ])('rejects a target with the error: $message', async ({ target, message }) => {
    await expect(read(files, { ...target, ownNetwork: true })).rejects.toMatchObject({
      kind: 'invalid',
      message,
    });
  });

  it('returns a sample or throws MalformedCgroupFileError for damaged copies of the recorded files', async () => {
    const arbDamage = fc.record({
      file: fc.nat(),
      at: fc.double({ min: 0, max: 1, noNaN: true }),
      drop: fc.nat(40),
      put: fc.oneof(
        fc.string({ unit: 'binary', maxLength: 8 }),
        fc.constantFrom('\n', ' ', '-1', 'max', '=', '18446744073709551616', '..', '%00'),
      ),
      kind: fc.constantFrom('edit', 'edit', 'edit', 'cut', 'remove', 'swap', 'repeat'),
    });
    const arbRecorded = fc.constantFrom(...Object.values(recordedGroups));
    await fc.assert(
      fc.asyncProperty(
        arbRecorded,
        fc.array(arbDamage, { minLength: 1, maxLength: 6 }),
        async (recorded, damages) => {
          const damaged: Record<string, string> = { ...recorded.files };
          const names = Object.keys(damaged);
          for (const { file, at, drop, put, kind } of damages) {
            const name = names[file % names.length] ?? '';
            const text = damaged[name] ?? '';
            const index = Math.floor(at * text.length);
            if (kind === 'edit')
              damaged[name] = text.slice(0, index) + put + text.slice(index + drop);
            if (kind === 'cut') damaged[name] = text.slice(0, index);
            if (kind === 'remove') delete damaged[name];
            if (kind === 'swap')
              damaged[name] = damaged[names[(file + 1) % names.length] ?? ''] ?? '';
            if (kind === 'repeat') damaged[name] = text + text.slice(index);
          }
          try {
            const result = await read(damaged, { pid: recorded.pid, ownNetwork: true });
            for (const problem of result?.problems ?? [])
              expect(problem).toMatchObject({ name: 'MalformedCgroupFileError' });
          } catch (reason) {
            expect(reason).toMatchObject({
              name: 'MalformedCgroupFileError',
              kind: 'invalid',
              file: expect.stringMatching(/^\/proc/) as string,
            });
          }
        },
      ),
      { numRuns: 400 },
    );
  });
});
