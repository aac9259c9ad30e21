import fc from 'fast-check';
import * as stats from './index.js';

const {
  MalformedCgroupFileError,
  cpuMillisBetween,
  parseCfsQuota,
  parseCpuMax,
  parseCpuStat,
  parseCpuacctUsage,
  parseCpusAllowed,
  parseLoadavg,
  parseMeminfo,
  parseMemoryLimitInBytes,
  parseMemoryMax,
  parseMemoryStat,
  parseMemoryUsage,
  parseProcStat,
  workingSetBytes,
} = stats;

const MEMINFO =
  'MemTotal:       24684096 kB\nMemFree:        24453356 kB\nMemAvailable:   24401580 kB\nBuffers:            1224 kB\nCached:            92548 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\nHugePages_Total:       0\n';
const CPU_STAT = 'usage_usec 293092136\nuser_usec 259624142\nsystem_usec 33467993\nnice_usec 0\n';
const MEMORY_STAT_V1 =
  'cache 9261056\nrss 12963840\ninactive_file 8192\nhierarchical_memory_limit 9223372036854771712\ntotal_inactive_file 64671744\n';
const STAT =
  '10693 (a) (b c) R 10648 10648 2204 0 -1 4194304 101 0 0 0 7 8 0 0 20 0 1 0 230565 3133440 388 18446744073709551615 1 1 1 0 0 0';
const STATUS = 'Name:\tnode\nCpus_allowed:\t8f\nCpus_allowed_list:\t0-3,7\nMems_allowed_list:\t0\n';

describe('parsers', () => {
  it.each([
    { name: 'cpu.max', parse: () => parseCpuMax('150000 100000\n'), gives: { quotaUsec: 150_000, periodUsec: 100_000 } },
    { name: 'cpu.max without a limit', parse: () => parseCpuMax('max 100000\n'), gives: undefined },
    { name: 'cpu.max without a period', parse: () => parseCpuMax('50000'), gives: { quotaUsec: 50_000, periodUsec: 100_000 } },
    {
      name: 'cpu.cfs_quota_us',
      parse: () => parseCfsQuota('200000\n', '100000\n'),
      gives: { quotaUsec: 200_000, periodUsec: 100_000 },
    },
    { name: 'cpu.cfs_quota_us without a limit', parse: () => parseCfsQuota('-1\n', '100000\n'), gives: undefined },
    {
      name: 'cpu.stat, microseconds to nanoseconds',
      parse: () => parseCpuStat(CPU_STAT),
      gives: { usageNsec: 293_092_136_000n, userNsec: 259_624_142_000n, systemNsec: 33_467_993_000n },
    },
    { name: 'cpu.stat of an old kernel', parse: () => parseCpuStat('usage_usec 5\n'), gives: { usageNsec: 5_000n } },
    {
      name: 'cpuacct.usage beyond 53 bits',
      parse: () => parseCpuacctUsage('18446744073709551615\n'),
      gives: { usageNsec: 18_446_744_073_709_551_615n },
    },
    { name: 'Cpus_allowed_list', parse: () => parseCpusAllowed(STATUS), gives: 5 },
    {
      name: '/proc/meminfo',
      parse: () => parseMeminfo(MEMINFO),
      gives: {
        totalBytes: 24_684_096 * 1_024,
        freeBytes: 24_453_356 * 1_024,
        availableBytes: 24_401_580 * 1_024,
        swapTotalBytes: 0,
        swapFreeBytes: 0,
      },
    },
    {
      name: '/proc/meminfo of an old kernel',
      parse: () => parseMeminfo('MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 20 kB\n'),
      gives: { totalBytes: 102_400, freeBytes: 10_240, availableBytes: 35_840, swapTotalBytes: 0, swapFreeBytes: 0 },
    },
    { name: 'memory.max', parse: () => parseMemoryMax('536870912\n'), gives: 536_870_912 },
    { name: 'memory.max without a limit', parse: () => parseMemoryMax('max\n'), gives: undefined },
    { name: 'memory.limit_in_bytes', parse: () => parseMemoryLimitInBytes('536870912\n'), gives: 536_870_912 },
    {
      name: 'memory.limit_in_bytes without a limit, 4 KiB pages',
      parse: () => parseMemoryLimitInBytes('9223372036854771712\n'),
      gives: undefined,
    },
    {
      name: 'memory.limit_in_bytes without a limit, 64 KiB pages',
      parse: () => parseMemoryLimitInBytes('9223372036854710272\n'),
      gives: undefined,
    },
    { name: 'memory.usage_in_bytes', parse: () => parseMemoryUsage('16027648\n'), gives: 16_027_648 },
    {
      name: 'memory.stat of v1 counts the groups below',
      parse: () => parseMemoryStat(MEMORY_STAT_V1),
      gives: { inactiveFileBytes: 64_671_744 },
    },
    {
      name: 'memory.stat of v2',
      parse: () => parseMemoryStat('anon 1\nfile 2\ninactive_file 4096\n'),
      gives: { inactiveFileBytes: 4_096 },
    },
    {
      name: '/proc/<pid>/stat with brackets and blanks in the name',
      parse: () => parseProcStat(STAT),
      gives: {
        pid: 10_693,
        command: 'a) (b c',
        state: 'R',
        parentPid: 10_648,
        userTicks: 7n,
        systemTicks: 8n,
        startTicks: 230_565n,
        residentPages: 388,
      },
    },
    {
      name: '/proc/loadavg',
      parse: () => parseLoadavg('0.10 0.05 12.05 1/86 3790\n'),
      gives: { oneMinute: 0.1, fiveMinutes: 0.05, fifteenMinutes: 12.05 },
    },
  ])('reads $name', ({ parse, gives }) => expect(parse()).toEqual(gives));

  it.each([
    { name: 'an empty cpu.max', parse: () => parseCpuMax(''), file: 'cpu.max', line: 0 },
    { name: 'a quota of 0', parse: () => parseCpuMax('0 100000'), file: 'cpu.max', line: 1 },
    { name: 'a period of 0', parse: () => parseCfsQuota('-1', '0'), file: 'cpu.cfs_period_us', line: 1 },
    { name: 'cpu.max with three fields', parse: () => parseCpuMax('1 2 3'), file: 'cpu.max', line: 1 },
    { name: 'a negative quota', parse: () => parseCfsQuota('-2', '100000'), file: 'cpu.cfs_quota_us', line: 1 },
    { name: 'cpu.stat without usage', parse: () => parseCpuStat('user_usec 1\n'), file: 'cpu.stat', line: 0 },
    { name: 'cpu.stat with words', parse: () => parseCpuStat('user_usec 1\nusage_usec many\n'), file: 'cpu.stat', line: 2 },
    { name: 'a line without a value', parse: () => parseCpuStat('\nusage_usec\n'), file: 'cpu.stat', line: 2 },
    { name: 'a fraction', parse: () => parseMemoryUsage('1.5'), file: 'memory usage', line: 1 },
    { name: 'two lines for one', parse: () => parseMemoryMax('1\n2\n'), file: 'memory.max', line: 2 },
    { name: 'meminfo without MemFree', parse: () => parseMeminfo('MemTotal: 1 kB\n'), file: '/proc/meminfo', line: 0 },
    {
      name: 'a list that goes backwards',
      parse: () => parseCpusAllowed('Cpus_allowed_list:\t3-1\n'),
      file: '/proc/<pid>/status',
      line: 1,
    },
    { name: 'a status without the list', parse: () => parseCpusAllowed('Name: x\n'), file: '/proc/<pid>/status', line: 0 },
    { name: 'a cut-off stat', parse: () => parseProcStat('1 (x) R 1 2'), file: '/proc/<pid>/stat', line: 1 },
    { name: 'a stat without a name', parse: () => parseProcStat('1 x R 1 2'), file: '/proc/<pid>/stat', line: 1 },
    { name: 'a load of two numbers', parse: () => parseLoadavg('0.1 0.2'), file: '/proc/loadavg', line: 1 },
  ])('refuses $name', ({ parse, file, line }) => {
    expect(parse).toThrow(MalformedCgroupFileError);
    expect(parse).toThrow(expect.objectContaining({ file, line, kind: 'internal' }) as Error);
  });

  const parsers: readonly (readonly [string, (text: string) => unknown, string])[] = [
    ['parseCpuMax', parseCpuMax, '150000 100000\n'],
    ['parseCfsQuota', (text) => parseCfsQuota(text, text), '100000\n'],
    ['parseCpuStat', parseCpuStat, CPU_STAT],
    ['parseCpuacctUsage', parseCpuacctUsage, '300876738672\n'],
    ['parseCpusAllowed', parseCpusAllowed, STATUS],
    ['parseMeminfo', parseMeminfo, MEMINFO],
    ['parseMemoryMax', parseMemoryMax, 'max\n'],
    ['parseMemoryLimitInBytes', parseMemoryLimitInBytes, '9223372036854771712\n'],
    ['parseMemoryUsage', parseMemoryUsage, '16027648\n'],
    ['parseMemoryStat', parseMemoryStat, MEMORY_STAT_V1],
    ['parseProcStat', parseProcStat, STAT],
    ['parseLoadavg', parseLoadavg, '0.00 0.05 0.05 1/86 3790\n'],
    ['parseProcCgroup', stats.parseProcCgroup, '4:memory:/a\n0::/\n'],
    ['parseCgroupMounts', stats.parseCgroupMounts, '32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n'],
  ];

  it.each(parsers)('%s reads any text or refuses it as malformed', (_name, parse, valid) => {
    parse(valid);
    const orMalformed = (text: string): void => {
      try {
        parse(text);
      } catch (reason) {
        expect(reason).toBeInstanceOf(MalformedCgroupFileError);
      }
    };
    const arbDamage = fc.record({ at: fc.nat(valid.length), drop: fc.nat(6), put: fc.string({ maxLength: 4, unit: 'binary' }) });
    fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 200 }), orMalformed));
    fc.assert(fc.property(arbDamage, ({ at, drop, put }) => orMalformed(valid.slice(0, at) + put + valid.slice(at + drop))));
  });

  it('exports no parser that the property above leaves out', () => {
    const exported = Object.keys(stats).filter((name) => name.startsWith('parse'));
    expect(parsers.map(([name]) => name).sort()).toEqual(exported.sort());
  });

  it.each(parsers)('%s takes no more than a second of CPU for seven megabytes of anything', (_name, parse, valid) => {
    const before = process.cpuUsage();
    for (const unit of [valid, ' ', '\n', '(', '0', 'a ', '0-1,']) {
      try {
        parse(unit.repeat(1_000_000 / unit.length));
      } catch (reason) {
        expect(reason).toBeInstanceOf(MalformedCgroupFileError);
      }
    }
    const used = process.cpuUsage(before);
    expect(used.user + used.system).toBeLessThan(1_000_000);
  });
});

describe('cpuMillisBetween', () => {
  it.each([
    { name: 'one CPU', used: 1_000_000_000n, elapsedMs: 1_000, millis: 1_000 },
    { name: 'a quarter', used: 500_000_000n, elapsedMs: 2_000, millis: 250 },
    { name: 'nothing', used: 0n, elapsedMs: 1_000, millis: 0 },
    { name: 'a counter that began anew', used: -1n, elapsedMs: 1_000, millis: undefined },
    { name: 'no time between', used: 1n, elapsedMs: 0, millis: undefined },
  ])('$name', ({ used, elapsedMs, millis }) => {
    const earlier = { usageNsec: 5_000_000_000n, atMs: 10 };
    expect(cpuMillisBetween(earlier, { usageNsec: earlier.usageNsec + used, atMs: 10 + elapsedMs })).toBe(millis);
  });
});

describe('workingSetBytes', () => {
  it('leaves out what can be dropped, and is never below 0', () => {
    expect(workingSetBytes(100, { inactiveFileBytes: 30 })).toBe(70);
    expect(workingSetBytes(100, { inactiveFileBytes: 130 })).toBe(0);
  });
});
