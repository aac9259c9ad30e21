import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import { MalformedCgroupFileError } from '@cloudless/cgroup-stats';
import { createHostReader, thisMachine, type HostMachine } from './index.js';

/** A file system without a fixed number of inodes. */
const NO_INODES = { used: 0, total: 0 };
const GIB = 1_073_741_824;
const MEMINFO = `MemTotal:       ${8 * 1_048_576} kB\nMemFree:        1048576 kB\nMemAvailable:   ${6 * 1_048_576} kB\n`;
const MOUNT = {
  v1: `32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
`,
  v2: '30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n',
  hybrid: `32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`,
};
const BASE = { 'proc/meminfo': MEMINFO, 'proc/self/status': 'Cpus_allowed_list:\t0-3\n' };

const V1 = {
  ...BASE,
  'proc/self/mountinfo': MOUNT.v1,
  'proc/self/cgroup': '4:memory:/agent\n2:cpu,cpuacct:/agent\n',
  'sys/fs/cgroup/cpu,cpuacct/agent/cpu.cfs_quota_us': '150000\n',
  'sys/fs/cgroup/cpu,cpuacct/agent/cpu.cfs_period_us': '100000\n',
  'sys/fs/cgroup/cpu,cpuacct/agent/cpuacct.usage': '7000000000\n',
  'sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us': '-1\n',
  'sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us': '100000\n',
  'sys/fs/cgroup/memory/agent/memory.limit_in_bytes': `${2 * GIB}\n`,
  'sys/fs/cgroup/memory/agent/memory.usage_in_bytes': `${GIB}\n`,
  'sys/fs/cgroup/memory/agent/memory.stat': 'inactive_file 1\ntotal_inactive_file 1024\n',
  'sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
};
const V2 = {
  ...BASE,
  'proc/self/mountinfo': MOUNT.v2,
  'proc/self/cgroup': '0::/slice/agent\n',
  'sys/fs/cgroup/slice/agent/cpu.max': 'max 100000\n',
  'sys/fs/cgroup/slice/cpu.max': '250000 100000\n',
  'sys/fs/cgroup/slice/cpu.stat': 'usage_usec 7000000\n',
  'sys/fs/cgroup/slice/agent/memory.max': `${4 * GIB}\n`,
  'sys/fs/cgroup/slice/memory.max': `${3 * GIB}\n`,
  'sys/fs/cgroup/slice/memory.current': `${2 * GIB}\n`,
  'sys/fs/cgroup/slice/memory.stat': `inactive_file ${GIB}\n`,
};
const HYBRID = {
  ...BASE,
  'proc/self/mountinfo': MOUNT.hybrid,
  'proc/self/cgroup': '4:memory:/agent\n2:cpuacct:/\n1:cpu:/\n0::/\n',
  'sys/fs/cgroup/cpu/cpu.cfs_quota_us': '-1\n',
  'sys/fs/cgroup/cpu/cpu.cfs_period_us': '100000\n',
  'sys/fs/cgroup/cpuacct/cpuacct.usage': '5\n',
  'sys/fs/cgroup/memory/agent/memory.limit_in_bytes': '9223372036854771712\n',
  'sys/fs/cgroup/unified/cpu.stat': 'usage_usec 1\n',
};
/** A quota in the hierarchy of cpu, while cpuacct is mounted separately. */
const SPLIT = {
  ...HYBRID,
  'sys/fs/cgroup/cpu/cpu.cfs_quota_us': '50000\n',
};
/** In a container without a cgroup namespace, the path of the group is not mounted. */
const FOREIGN = {
  ...V2,
  'proc/self/cgroup': '0::/elsewhere\n',
  'sys/fs/cgroup/cpu.max': '100000 100000\n',
};

let root: string;
/** Temporary directories, removed after all tests. */
const directories: string[] = [];

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'host-reader-'));
  directories.push(root);
});
afterAll(async () => {
  for (const path of directories) await rm(path, { recursive: true, force: true });
});

async function writeFiles(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
}

/**
 * Returns a machine with 4 CPUs, 16 GiB of memory and a disk of 100 bytes. A test changes `state`.
 */
function aMachine() {
  const state = { busyNsec: 1_000_000_000n, diskUsedBytes: 10, usedInodes: 0, totalInodes: 0 };
  const machine: HostMachine = {
    cpuCount: () => 4,
    cpuBusyNsec: () => state.busyNsec,
    totalMemoryBytes: () => 16 * GIB,
    freeMemoryBytes: () => 10 * GIB,
    diskUseOf: async () => {
      const { diskUsedBytes: usedBytes, usedInodes, totalInodes } = state;
      return { usedBytes, totalBytes: 100, usedInodes, totalInodes };
    },
  };
  return { state, machine };
}

function aReader() {
  const { state, machine } = aMachine();
  const clock = new ManualClock();
  const reader = createHostReader({
    clock,
    machine,
    dataDirectory: '/data',
    procRoot: join(root, 'proc'),
    sysRoot: join(root, 'sys'),
  });
  return { reader, state, clock };
}

describe('HostReader with files of a test', () => {
  it.each([
    {
      name: 'cgroup v1 with limits',
      files: V1,
      cpuMillis: 1_500,
      memoryBytes: 2 * GIB,
      usedBytes: GIB - 1_024,
      layout: 'v1',
    },
    {
      name: 'cgroup v2 with the limits of an ancestor group',
      files: V2,
      cpuMillis: 2_500,
      memoryBytes: 3 * GIB,
      usedBytes: GIB,
      layout: 'v2',
    },
    {
      name: 'a hybrid machine without limits',
      files: HYBRID,
      cpuMillis: 4_000,
      memoryBytes: 8 * GIB,
      usedBytes: 2 * GIB,
      layout: 'hybrid',
    },
    {
      name: 'a group whose path is not mounted',
      files: FOREIGN,
      cpuMillis: 1_000,
      memoryBytes: 8 * GIB,
      usedBytes: 2 * GIB,
      layout: 'v2',
    },
    {
      name: 'a machine without cgroups',
      files: BASE,
      cpuMillis: 4_000,
      memoryBytes: 8 * GIB,
      usedBytes: 2 * GIB,
      layout: 'none',
    },
    {
      name: 'fewer CPUs allowed than present',
      files: { ...BASE, 'proc/self/status': 'Cpus_allowed_list:\t1\n' },
      cpuMillis: 1_000,
      memoryBytes: 8 * GIB,
      usedBytes: 2 * GIB,
      layout: 'none',
    },
    {
      name: 'CPUs allowed that are not present',
      files: { ...BASE, 'proc/self/status': 'Cpus_allowed_list:\t0-127\n' },
      cpuMillis: 4_000,
      memoryBytes: 8 * GIB,
      usedBytes: 2 * GIB,
      layout: 'none',
    },
    {
      name: 'no files at all, as on macOS',
      files: {},
      cpuMillis: 4_000,
      memoryBytes: 16 * GIB,
      usedBytes: 6 * GIB,
      layout: 'none',
    },
  ])(
    'returns capacity and usage for $name',
    async ({ files, cpuMillis, memoryBytes, usedBytes, layout }) => {
      await writeFiles(files);
      const { reader } = aReader();
      expect(await reader.readCapacity()).toEqual({
        cpuMillis,
        memoryBytes,
        storageBytes: 100,
        cgroupLayout: layout,
      });
      expect(await reader.readUsage()).toEqual({
        memoryBytes: usedBytes,
        storageBytes: 10,
        inodes: NO_INODES,
      });
    },
  );

  it.each([
    {
      name: 'v1',
      files: V1,
      later: { 'sys/fs/cgroup/cpu,cpuacct/agent/cpuacct.usage': '8000000000\n' },
    },
    { name: 'v2', files: V2, later: { 'sys/fs/cgroup/slice/cpu.stat': 'usage_usec 8000000\n' } },
    {
      name: 'v1 with cpuacct apart from cpu',
      files: SPLIT,
      later: { 'sys/fs/cgroup/cpuacct/cpuacct.usage': '1000000005\n' },
    },
  ])('measures CPU use in the group that sets the quota: $name', async ({ files, later }) => {
    await writeFiles(files);
    const { reader, clock } = aReader();
    await reader.readUsage();
    await clock.advance(2_000);
    await writeFiles(later);
    expect(await reader.readUsage()).toMatchObject({ cpuMillis: 500 });
  });

  it('measures CPU use of the whole machine when no group has a lower quota', async () => {
    await writeFiles(HYBRID);
    const { reader, clock, state } = aReader();
    await reader.readUsage();
    await clock.advance(1_000);
    state.busyNsec += 3_000_000_000n;
    expect(await reader.readUsage()).toMatchObject({ cpuMillis: 3_000 });
  });

  it('omits CPU use when another group sets the quota than at the previous reading', async () => {
    await writeFiles(V2);
    const { reader, clock } = aReader();
    await reader.readUsage();
    await clock.advance(1_000);
    await writeFiles({ 'sys/fs/cgroup/slice/cpu.max': 'max 100000\n' });
    expect(await reader.readUsage()).not.toHaveProperty('cpuMillis');
  });

  it('reports pressure from above 85 % until use falls below 80 %, and a full disk below 5 % free', async () => {
    await writeFiles(V2);
    const { reader, state } = aReader();
    expect(await reader.readConditions()).toEqual({
      ...{ memoryPressure: false, diskPressure: false, diskFull: false, inodesFull: false },
    });
    state.diskUsedBytes = 86;
    await writeFiles({
      'sys/fs/cgroup/slice/memory.stat': 'inactive_file 0\n',
      'sys/fs/cgroup/slice/memory.current': `${2.9 * GIB}`.split('.')[0] ?? '',
    });
    expect(await reader.readConditions()).toEqual({
      ...{ memoryPressure: true, diskPressure: true, diskFull: false, inodesFull: false },
    });
    state.diskUsedBytes = 82;
    await writeFiles({ 'sys/fs/cgroup/slice/memory.current': `${GIB}` });
    expect(await reader.readConditions()).toEqual({
      ...{ memoryPressure: false, diskPressure: true, diskFull: false, inodesFull: false },
    });
    state.diskUsedBytes = 96;
    expect(await reader.readConditions()).toMatchObject({ diskFull: true });
    state.diskUsedBytes = 91;
    expect(await reader.readConditions()).toMatchObject({ diskFull: true });
    state.diskUsedBytes = 90;
    expect(await reader.readConditions()).toMatchObject({ diskFull: false });
  });

  it('reports inodes and that few are free, and neither for a file system without a limit', async () => {
    const { reader, state } = aReader();
    expect(await reader.readUsage()).toMatchObject({ inodes: { used: 0, total: 0 } });
    expect(await reader.readConditions()).toMatchObject({ inodesFull: false });
    [state.usedInodes, state.totalInodes] = [96, 100];
    expect(await reader.readUsage()).toMatchObject({ inodes: { used: 96, total: 100 } });
    expect(await reader.readConditions()).toMatchObject({ diskFull: false, inodesFull: true });
    state.usedInodes = 91;
    expect(await reader.readConditions()).toMatchObject({ inodesFull: true });
    state.usedInodes = 90;
    expect(await reader.readConditions()).toMatchObject({ inodesFull: false });
  });

  it('reports no memory pressure without /proc/meminfo, even when no memory is free', async () => {
    const { machine } = aMachine();
    const withoutFreeMemory = { ...machine, freeMemoryBytes: () => 0 };
    const empty = { procRoot: join(root, 'proc'), sysRoot: join(root, 'sys') };
    const reader = createHostReader({
      clock: new ManualClock(),
      machine: withoutFreeMemory,
      dataDirectory: '/data',
      ...empty,
    });
    expect(await reader.readConditions()).toMatchObject({ memoryPressure: false });
  });

  it('rejects readCapacity when a file is malformed', async () => {
    await writeFiles({ ...V2, 'sys/fs/cgroup/slice/cpu.max': 'plenty\n' });
    const { reader } = aReader();
    await expect(reader.readCapacity()).rejects.toThrow(MalformedCgroupFileError);
  });
});

describe('HostReader on this machine', () => {
  it('returns plausible values, also for a data directory that does not exist yet', async () => {
    const clock = new ManualClock();
    const reader = createHostReader({ clock, dataDirectory: join(root, 'not/there/yet') });
    const capacity = await reader.readCapacity();
    expect(capacity.cpuMillis).toBeGreaterThan(0);
    expect(capacity.cpuMillis).toBeLessThanOrEqual(thisMachine.cpuCount() * 1_000);
    expect(capacity.memoryBytes).toBeGreaterThan(16 * 1_048_576);
    expect(capacity.memoryBytes).toBeLessThanOrEqual(thisMachine.totalMemoryBytes());
    const first = await reader.readUsage();
    expect(first.cpuMillis).toBeUndefined();
    expect(first.memoryBytes).toBeGreaterThan(0);
    expect(first.memoryBytes).toBeLessThanOrEqual(capacity.memoryBytes);
    expect(first.storageBytes).toBeLessThanOrEqual(capacity.storageBytes);
    await clock.advance(1_000);
    expect((await reader.readUsage()).cpuMillis).toBeGreaterThanOrEqual(0);
    const conditions = await reader.readConditions();
    expect(Object.keys(conditions).sort()).toEqual([
      ...['diskFull', 'diskPressure', 'inodesFull', 'memoryPressure'],
    ]);
  });
});
