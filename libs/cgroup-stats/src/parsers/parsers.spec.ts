import { getHeapSpaceStatistics } from 'node:v8';
import fc from 'fast-check';
import * as stats from '../index.js';

const {
  MalformedCgroupFileError,
  parseAmount,
  parseCfsQuota,
  parseCpuMax,
  parseCounter,
  parseCpuStat,
  parseCpuThrottling,
  parseCpuacctUsage,
  parseCpusAllowed,
  parseIoStat,
  parseLimit,
  parseMeminfo,
  parseMemoryStat,
  parseNetDev,
  parsePressure,
  parseProcIo,
  parseProcMemory,
  parseProcStat,
  parseThrottleIo,
  workingSetBytes,
} = stats;

const MEMINFO =
  'MemTotal:       24684096 kB\nMemFree:        24453356 kB\nMemAvailable:   24401580 kB\nBuffers:            1224 kB\nCached:            92548 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\nHugePages_Total:       0\n';
const CPU_STAT = 'usage_usec 293092136\nuser_usec 259624142\nsystem_usec 33467993\nnice_usec 0\n';
const MEMORY_STAT_V1 =
  'cache 9261056\nrss 12963840\ninactive_file 8192\nhierarchical_memory_limit 9223372036854771712\ntotal_inactive_file 64671744\n';
const IO_STAT = `8:16 rbytes=90 wbytes=5 rios=4 wios=7 dbytes=8 dios=9 use_delay=0 depth=max
8:0 rbytes=1 wbytes=0 rios=7 wios=0 dbytes=0 dios=0 cost.usage=x
`;
const THROTTLE_IO = `254:0 Read 50429952
254:0 Write 26230784
254:0 Sync 76660736
254:0 Async 0
254:0 Discard 0
254:0 Total 76660736
8:0 Read 1
Total 76660737
`;
const NET_HEAD = `Inter-|   Receive                            |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
`;
const ETH0 =
  '  eth0:     100      10    1    2    0     0          0         0      200      20    3    4    0     0       0          0\n';
const PRESSURE = `some avg10=12.49 avg60=2.25 avg300=0.47 total=1753100
full avg10=100.00 avg60=2.22 avg300=0.46 total=1747832
`;
const STAT =
  '10693 (a) (b c) R 10648 10648 2204 0 -1 4194304 101 0 0 0 7 8 5 6 20 0 1 0 230565 3133440 388 18446744073709551615 1 1 1 0 0 0';
const PROC_MEMORY =
  'Name:\tnode\nGroups:\t \nVmHWM:\t  9000 kB\nVmRSS:\t    1652 kB\nRssAnon:\t     112 kB\nRssFile:\t    1500 kB\nRssShmem:\t      40 kB\nVmSwap:\t       8 kB\nThreads:\t7\n';
const PROC_IO =
  'rchar: 6976\nwchar: 1\nsyscr: 10\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n';
const STATUS = 'Name:\tnode\nCpus_allowed:\t8f\nCpus_allowed_list:\t0-3,7\nMems_allowed_list:\t0\n';

describe('parsers', () => {
  it.each([
    {
      name: 'cpu.max',
      parse: () => parseCpuMax('150000 100000\n'),
      expected: { quotaUsec: 150_000, periodUsec: 100_000 },
    },
    {
      name: 'cpu.max without a limit',
      parse: () => parseCpuMax('max 100000\n'),
      expected: undefined,
    },
    {
      name: 'cpu.max without a period',
      parse: () => parseCpuMax('50000'),
      expected: { quotaUsec: 50_000, periodUsec: 100_000 },
    },
    {
      name: 'cpu.cfs_quota_us',
      parse: () => parseCfsQuota('200000\n', '100000\n'),
      expected: { quotaUsec: 200_000, periodUsec: 100_000 },
    },
    {
      name: 'cpu.cfs_quota_us without a limit',
      parse: () => parseCfsQuota('-1\n', '100000\n'),
      expected: undefined,
    },
    {
      name: 'cpu.stat, microseconds to nanoseconds',
      parse: () => parseCpuStat(CPU_STAT),
      expected: {
        usageNsec: 293_092_136_000n,
        userNsec: 259_624_142_000n,
        systemNsec: 33_467_993_000n,
      },
    },
    {
      name: 'cpu.stat of an old kernel',
      parse: () => parseCpuStat('usage_usec 5\n'),
      expected: { usageNsec: 5_000n },
    },
    {
      name: 'cpuacct.usage beyond 53 bits',
      parse: () => parseCpuacctUsage('18446744073709551615\n'),
      expected: { usageNsec: 18_446_744_073_709_551_615n },
    },
    { name: 'Cpus_allowed_list', parse: () => parseCpusAllowed(STATUS), expected: 5 },
    {
      name: '/proc/meminfo',
      parse: () => parseMeminfo(MEMINFO),
      expected: {
        totalBytes: 24_684_096 * 1_024,
        freeBytes: 24_453_356 * 1_024,
        availableBytes: 24_401_580 * 1_024,
        swapTotalBytes: 0,
        swapFreeBytes: 0,
      },
    },
    {
      name: '/proc/meminfo with neither available nor reclaimable memory',
      parse: () => parseMeminfo('MemTotal: 100 kB\nMemFree: 10 kB\n').availableBytes,
      expected: 10_240,
    },
    {
      name: '/proc/meminfo of an old kernel',
      parse: () => parseMeminfo('MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 20 kB\n'),
      expected: {
        totalBytes: 102_400,
        freeBytes: 10_240,
        availableBytes: 35_840,
        swapTotalBytes: 0,
        swapFreeBytes: 0,
      },
    },
    {
      name: 'memory.max',
      parse: () => parseLimit('memory.max', '536870912\n'),
      expected: 536_870_912,
    },
    {
      name: 'memory.max without a limit',
      parse: () => parseLimit('memory.max', 'max\n'),
      expected: undefined,
    },
    {
      name: 'memory.limit_in_bytes',
      parse: () => parseLimit('memory.limit_in_bytes', '536870912\n'),
      expected: 536_870_912,
    },
    {
      name: 'memory.limit_in_bytes without a limit, 4 KiB pages',
      parse: () => parseLimit('memory.limit_in_bytes', '9223372036854771712\n'),
      expected: undefined,
    },
    {
      name: 'memory.limit_in_bytes without a limit, 64 KiB pages',
      parse: () => parseLimit('memory.limit_in_bytes', '9223372036854710272\n'),
      expected: undefined,
    },
    {
      name: 'memory.usage_in_bytes',
      parse: () => parseAmount('memory.usage_in_bytes', '16027648\n'),
      expected: 16_027_648,
    },
    {
      name: 'memory.stat of v1 with the groups below',
      parse: () => parseMemoryStat(MEMORY_STAT_V1),
      expected: { inactiveFileBytes: 64_671_744, fileBytes: 9_261_056, anonBytes: 12_963_840 },
    },
    {
      name: 'memory.stat of v2',
      parse: () => parseMemoryStat('anon 1\nfile 2\nswapcached 3\ninactive_file 4096\n'),
      expected: { inactiveFileBytes: 4_096, fileBytes: 2, anonBytes: 1 },
    },
    {
      name: 'memory.stat of v1 with swap, totals preferred over the group itself',
      parse: () =>
        parseMemoryStat(
          'cache 1\nrss 2\nswap 3\ninactive_file 4\ntotal_swap 30\ntotal_rss 20\ntotal_cache 10\n',
        ),
      expected: { inactiveFileBytes: 4, fileBytes: 10, anonBytes: 20, swapBytes: 30 },
    },
    {
      name: 'memory.memsw.limit_in_bytes',
      parse: () => parseLimit('memory.memsw.limit_in_bytes', '4096\n'),
      expected: 4_096,
    },
    { name: 'a limit of 0', parse: () => parseLimit('memory.swap.max', '0\n'), expected: 0 },
    { name: 'pids.current', parse: () => parseAmount('pids.current', '7\n'), expected: 7 },
    { name: 'pids.max', parse: () => parseLimit('pids.max', '512\n'), expected: 512 },
    {
      name: 'pids.max without a limit',
      parse: () => parseLimit('pids.max', 'max\n'),
      expected: undefined,
    },
    {
      name: 'cpuacct.usage_user',
      parse: () => parseCounter('cpuacct.usage_user', '324000000\n'),
      expected: 324_000_000n,
    },
    {
      name: 'cpu.stat of v2 with throttling, microseconds to nanoseconds',
      parse: () =>
        parseCpuStat(
          'usage_usec 9\nnr_periods 12\nnr_throttled 3\nthrottled_usec 45\nnr_bursts 0\nburst_usec 0\n',
        ),
      expected: {
        usageNsec: 9_000n,
        throttling: { periods: 12n, throttledPeriods: 3n, throttledNsec: 45_000n },
      },
    },
    {
      name: 'cpu.stat of v2 whose throttling has no number of throttled periods',
      parse: () => parseCpuStat('usage_usec 9\nnr_periods 12\nthrottled_usec 45\n'),
      expected: { usageNsec: 9_000n },
    },
    {
      name: 'cpu.stat of v2 that ends in the middle of throttling',
      parse: () => parseCpuStat('usage_usec 9\nnr_periods 12\nnr_throttled 3\n'),
      expected: { usageNsec: 9_000n },
    },
    {
      name: 'cpu.stat of v1, nanoseconds',
      parse: () =>
        parseCpuThrottling('nr_periods 12\nnr_throttled 3\nthrottled_time 45\nwait_sum 5\n'),
      expected: { periods: 12n, throttledPeriods: 3n, throttledNsec: 45n },
    },
    {
      name: 'cpu.stat of v1 without bandwidth control',
      parse: () => parseCpuThrottling(''),
      expected: undefined,
    },
    {
      name: 'io.stat, all devices together, other keys skipped',
      parse: () => parseIoStat(IO_STAT),
      expected: { readBytes: 91n, writeBytes: 5n, readOperations: 11n, writeOperations: 7n },
    },
    {
      name: 'io.stat with several devices on one line and one device in setup',
      parse: () => parseIoStat('7:7 7:6 8:0 rbytes=1 wbytes=2 rios=3 wios=4\n252:0 '),
      expected: { readBytes: 1n, writeBytes: 2n, readOperations: 3n, writeOperations: 4n },
    },
    {
      name: 'io.stat with a device hidden below another device',
      parse: () =>
        parseIoStat(
          '(unknown) rbytes=1 wbytes=2 rios=3 wios=4\n8:0 rbytes=1 wbytes=0 rios=1 wios=0\n',
        ),
      expected: { readBytes: 1n, writeBytes: 0n, readOperations: 1n, writeOperations: 0n },
    },
    {
      name: 'io.stat of a group without I/O',
      parse: () => parseIoStat(''),
      expected: { readBytes: 0n, writeBytes: 0n, readOperations: 0n, writeOperations: 0n },
    },
    {
      name: 'blkio.throttle.io_service_bytes',
      parse: () => parseThrottleIo('blkio.throttle.io_service_bytes', THROTTLE_IO),
      expected: { read: 50_429_953n, write: 26_230_784n },
    },
    {
      name: 'blkio.throttle.io_serviced without counted devices',
      parse: () => parseThrottleIo('blkio.throttle.io_serviced', 'Total 0\n'),
      expected: undefined,
    },
    {
      name: 'blkio.throttle.io_serviced with a device hidden below another device',
      parse: () =>
        parseThrottleIo(
          'blkio.throttle.io_serviced',
          '(unknown) Read 5\n8:0 Read 2\n8:0 Write 1\nTotal 8\n',
        ),
      expected: { read: 2n, write: 1n },
    },
    {
      name: '/proc/<pid>/net/dev, all but lo together',
      parse: () =>
        parseNetDev(
          `${NET_HEAD}    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n${ETH0} wg-0:1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\n`,
        ),
      expected: {
        receivedBytes: 101n,
        receivedPackets: 11n,
        receivedErrors: 2n,
        receivedDropped: 3n,
        sentBytes: 201n,
        sentPackets: 21n,
        sentErrors: 4n,
        sentDropped: 5n,
      },
    },
    {
      name: '/proc/<pid>/net/dev without interfaces',
      parse: () => parseNetDev(NET_HEAD).receivedBytes,
      expected: 0n,
    },
    {
      name: 'memory.pressure, microseconds to nanoseconds',
      parse: () => parsePressure('memory.pressure', PRESSURE),
      expected: {
        some: {
          avg10Percent: 12.49,
          avg60Percent: 2.25,
          avg300Percent: 0.47,
          totalNsec: 1_753_100_000n,
        },
        full: {
          avg10Percent: 100,
          avg60Percent: 2.22,
          avg300Percent: 0.46,
          totalNsec: 1_747_832_000n,
        },
      },
    },
    {
      name: 'cpu.pressure before kernel 5.13',
      parse: () =>
        parsePressure('cpu.pressure', 'some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n'),
      expected: { some: { avg10Percent: 0, avg60Percent: 0, avg300Percent: 0, totalNsec: 0n } },
    },
    {
      name: '/proc/<pid>/stat with brackets and blanks in the name',
      parse: () => parseProcStat(STAT),
      expected: {
        pid: 10_693,
        command: 'a) (b c',
        state: 'R',
        parentPid: 10_648,
        sessionPid: 2_204,
        userTicks: 7n,
        systemTicks: 8n,
        childUserTicks: 5n,
        childSystemTicks: 6n,
        startTicks: 230_565n,
        residentPages: 388,
      },
    },
    {
      name: 'memory and threads of /proc/<pid>/status',
      parse: () => parseProcMemory(PROC_MEMORY),
      expected: {
        residentBytes: 1_652 * 1_024,
        anonBytes: 112 * 1_024,
        fileBytes: 1_540 * 1_024,
        swapBytes: 8 * 1_024,
        threads: 7,
      },
    },
    {
      name: '/proc/<pid>/status of a process that has ended',
      parse: () => parseProcMemory('State:\tZ (zombie)\nThreads:\t1\n'),
      expected: { threads: 1 },
    },
    {
      name: '/proc/<pid>/io',
      parse: () => parseProcIo(PROC_IO),
      expected: { readBytes: 4_096n, writeBytes: 8_192n },
    },
  ])('return the expected value for $name', ({ parse, expected }) =>
    expect(parse()).toEqual(expected),
  );

  it.each([
    { name: 'an empty cpu.max', parse: () => parseCpuMax(''), file: 'cpu.max', line: 0 },
    { name: 'a quota of 0', parse: () => parseCpuMax('0 100000'), file: 'cpu.max', line: 1 },
    {
      name: 'a period of 0',
      parse: () => parseCfsQuota('-1', '0'),
      file: 'cpu.cfs_period_us',
      line: 1,
    },
    {
      name: 'cpu.max with three fields',
      parse: () => parseCpuMax('1 2 3'),
      file: 'cpu.max',
      line: 1,
    },
    {
      name: 'a negative quota',
      parse: () => parseCfsQuota('-2', '100000'),
      file: 'cpu.cfs_quota_us',
      line: 1,
    },
    {
      name: 'cpu.stat without usage',
      parse: () => parseCpuStat('user_usec 1\n'),
      file: 'cpu.stat',
      line: 0,
    },
    {
      name: 'cpu.stat with words',
      parse: () => parseCpuStat('user_usec 1\nusage_usec many\n'),
      file: 'cpu.stat',
      line: 2,
    },
    {
      name: 'a line without a value',
      parse: () => parseCpuStat('\nusage_usec\n'),
      file: 'cpu.stat',
      line: 2,
    },
    {
      name: 'throttling with words',
      parse: () => parseCpuThrottling('nr_periods 1\nnr_throttled x\n'),
      file: 'cpu.stat',
      line: 2,
    },
    {
      name: 'a limit with a unit',
      parse: () => parseLimit('pids.max', '5k'),
      file: 'pids.max',
      line: 1,
    },
    {
      name: 'an empty limit',
      parse: () => parseLimit('memory.swap.max', '\n'),
      file: 'memory.swap.max',
      line: 0,
    },
    {
      name: 'a counter below 0',
      parse: () => parseCounter('cpuacct.usage_sys', '-1'),
      file: 'cpuacct.usage_sys',
      line: 1,
    },
    {
      name: 'io.stat without a device',
      parse: () => parseIoStat('\nrbytes=1\n'),
      file: 'io.stat',
      line: 2,
    },
    {
      name: 'io.stat with a word as device',
      parse: () => parseIoStat('sda rbytes=1\n'),
      file: 'io.stat',
      line: 1,
    },
    {
      name: 'io.stat with a cut-off value',
      parse: () => parseIoStat('8:0 rbytes=1\n8:16 rbytes='),
      file: 'io.stat',
      line: 2,
    },
    {
      name: 'a cut-off line of blkio',
      parse: () => parseThrottleIo('blkio.throttle.io_serviced', '8:0 Read 1\n8:0 Wri'),
      file: 'blkio.throttle.io_serviced',
      line: 2,
    },
    {
      name: 'blkio without a device',
      parse: () => parseThrottleIo('blkio.throttle.io_serviced', 'Read 1 2\n'),
      file: 'blkio.throttle.io_serviced',
      line: 1,
    },
    {
      name: 'an empty net/dev',
      parse: () => parseNetDev(''),
      file: '/proc/<pid>/net/dev',
      line: 0,
    },
    {
      name: 'net/dev without headings',
      parse: () => parseNetDev(ETH0),
      file: '/proc/<pid>/net/dev',
      line: 1,
    },
    {
      name: 'net/dev without a name',
      parse: () => parseNetDev(`${NET_HEAD}1 2 3\n`),
      file: '/proc/<pid>/net/dev',
      line: 3,
    },
    {
      name: 'a cut-off net/dev',
      parse: () => parseNetDev(NET_HEAD + ETH0.slice(0, 60)),
      file: '/proc/<pid>/net/dev',
      line: 3,
    },
    {
      name: 'an empty pressure',
      parse: () => parsePressure('io.pressure', ''),
      file: 'io.pressure',
      line: 0,
    },
    {
      name: 'a pressure value that is not a percentage',
      parse: () => parsePressure('io.pressure', PRESSURE.replace('2.22', '2')),
      file: 'io.pressure',
      line: 2,
    },
    {
      name: 'a cut-off pressure',
      parse: () => parsePressure('io.pressure', PRESSURE.slice(0, 40)),
      file: 'io.pressure',
      line: 1,
    },
    {
      name: 'more hierarchies than the limit',
      parse: () => stats.parseProcCgroup('0::/\n'.repeat(2_000)),
      file: '/proc/<pid>/cgroup',
      line: 1_025,
    },
    {
      name: 'more cgroup mounts than the limit',
      parse: () => stats.parseCgroupMounts('1 2 0:1 / /m rw - cgroup2 none rw\n'.repeat(2_000)),
      file: '/proc/<pid>/mountinfo',
      line: 1_025,
    },
    {
      name: 'a fraction',
      parse: () => parseAmount('memory.peak', '1.5'),
      file: 'memory.peak',
      line: 1,
    },
    {
      name: 'two lines where one is expected',
      parse: () => parseLimit('memory.max', '1\n2\n'),
      file: 'memory.max',
      line: 2,
    },
    {
      name: 'meminfo without MemFree',
      parse: () => parseMeminfo('MemTotal: 1 kB\n'),
      file: '/proc/meminfo',
      line: 0,
    },
    {
      name: 'a list that goes backwards',
      parse: () => parseCpusAllowed('Cpus_allowed_list:\t3-1\n'),
      file: '/proc/<pid>/status',
      line: 1,
    },
    {
      name: 'a status without the list',
      parse: () => parseCpusAllowed('Name: x\n'),
      file: '/proc/<pid>/status',
      line: 0,
    },
    {
      name: 'a status without threads',
      parse: () => parseProcMemory('VmRSS: 1 kB\n'),
      file: '/proc/<pid>/status',
      line: 0,
    },
    {
      name: 'memory in another unit',
      parse: () => parseProcMemory('Threads: 1\nVmRSS: 1 MB\n'),
      file: '/proc/<pid>/status',
      line: 2,
    },
    {
      name: 'memory in words',
      parse: () => parseProcMemory('VmRSS: much kB\n'),
      file: '/proc/<pid>/status',
      line: 1,
    },
    {
      name: 'an io without reads',
      parse: () => parseProcIo('write_bytes: 1\n'),
      file: '/proc/<pid>/io',
      line: 0,
    },
    {
      name: 'a cut-off stat',
      parse: () => parseProcStat('1 (x) R 1 2'),
      file: '/proc/<pid>/stat',
      line: 1,
    },
    {
      name: 'a stat file without a bracket before the name',
      parse: () => parseProcStat(`1 x) R ${'0 '.repeat(30)}`),
      file: '/proc/<pid>/stat',
      line: 1,
    },
    {
      name: 'a stat file without a bracket after the name',
      parse: () => parseProcStat(`1 (x R ${'0 '.repeat(30)}`),
      file: '/proc/<pid>/stat',
      line: 1,
    },
    {
      name: 'a stat without a name',
      parse: () => parseProcStat('1 x R 1 2'),
      file: '/proc/<pid>/stat',
      line: 1,
    },
  ])(
    'throw MalformedCgroupFileError with $file and line $line for $name',
    ({ parse, file, line }) => {
      expect(parse).toThrow(MalformedCgroupFileError);
      expect(parse).toThrow(expect.objectContaining({ file, line, kind: 'invalid' }) as Error);
    },
  );

  const parsers: readonly (readonly [string, (text: string) => unknown, string])[] = [
    ['parseCpuMax', parseCpuMax, '150000 100000\n'],
    ['parseCfsQuota', (text) => parseCfsQuota(text, text), '100000\n'],
    ['parseCpuStat', parseCpuStat, CPU_STAT],
    ['parseCpuacctUsage', parseCpuacctUsage, '300876738672\n'],
    ['parseCpusAllowed', parseCpusAllowed, STATUS],
    ['parseMeminfo', parseMeminfo, MEMINFO],
    ['parseAmount', (text) => parseAmount('memory.current', text), '16027648\n'],
    ['parseCounter', (text) => parseCounter('cpuacct.usage_user', text), '324000000\n'],
    ['parseLimit', (text) => parseLimit('memory.limit_in_bytes', text), '9223372036854771712\n'],
    [
      'parseCpuThrottling',
      parseCpuThrottling,
      'nr_periods 46\nnr_throttled 44\nthrottled_time 3019519984\n',
    ],
    ['parseIoStat', parseIoStat, IO_STAT],
    ['parseThrottleIo', (text) => parseThrottleIo('blkio.throttle.io_serviced', text), THROTTLE_IO],
    ['parseNetDev', parseNetDev, NET_HEAD + ETH0],
    ['parsePressure', (text) => parsePressure('io.pressure', text), PRESSURE],
    ['parseMemoryStat', parseMemoryStat, MEMORY_STAT_V1],
    ['parseProcStat', parseProcStat, STAT],
    ['parseProcMemory', parseProcMemory, PROC_MEMORY],
    ['parseProcIo', parseProcIo, PROC_IO],
    ['parseProcCgroup', stats.parseProcCgroup, '4:memory:/a\n0::/\n'],
    [
      'parseCgroupMounts',
      stats.parseCgroupMounts,
      '32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n',
    ],
  ];

  it.each(parsers)(
    'named %s parse any text or throw MalformedCgroupFileError',
    (_name, parse, valid) => {
      parse(valid);
      const parseOrMalformed = (text: string): void => {
        try {
          parse(text);
        } catch (reason) {
          expect(reason).toMatchObject({ name: 'MalformedCgroupFileError', kind: 'invalid' });
        }
      };
      const arbBytes = fc
        .uint8Array({ maxLength: 400 })
        .map((bytes) => Buffer.from(bytes).toString('utf8'));
      const arbDamage = fc.record({
        at: fc.nat(valid.length),
        drop: fc.nat(6),
        put: fc.string({ maxLength: 4, unit: 'binary' }),
      });
      fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 200 }), parseOrMalformed));
      fc.assert(fc.property(arbBytes, parseOrMalformed));
      fc.assert(
        fc.property(arbDamage, ({ at, drop, put }) =>
          parseOrMalformed(valid.slice(0, at) + put + valid.slice(at + drop)),
        ),
      );
    },
  );

  it('are all checked by the properties of this file', () => {
    const exported = Object.keys(stats).filter((name) => name.startsWith('parse'));
    expect(parsers.map(([name]) => name).sort()).toEqual(exported.sort());
  });

  /** Returns texts that a hostile file may repeat up to the size limit. */
  const hostileTexts = (valid: string): readonly string[] => [
    valid,
    ...[
      ' ',
      '\n',
      '(',
      '0',
      '0 ',
      'a ',
      '0-1,',
      'a\n',
      'a 1\n',
      '8:0 ',
      'a=1 ',
      '0::/\n',
      '1:a:/\n',
      '|\n',
      'a:1\n',
      '1 2 3 / /m x - cgroup2 x\n',
    ],
    ...['8:0 Read 1\n', '8:0 rbytes=1\n', '1 2 3 / / x - cgroup a rw,', 'some avg10=1 '],
  ];
  /** Size limit of the reader, `MAX_FILE_BYTES` of cgroup-reader. */
  const SIZE = 262_144;

  it.each(parsers)(
    'named %s take at most 100 ms of CPU time for any text of the maximum size',
    (_name, parse, valid) => {
      for (const unit of hostileTexts(valid)) {
        const text = unit.repeat(SIZE / unit.length);
        expect({ unit, isSlow: isSlow(() => attempt(parse, text)) }).toEqual({
          unit,
          isSlow: false,
        });
      }
    },
  );

  it.each(parsers)(
    'named %s allocate at most ten times the size of the text that they parse',
    (_name, parse, valid) => {
      for (const unit of hostileTexts(valid)) {
        const text = Buffer.from(`${valid}${unit.repeat((2 * SIZE) / unit.length)}`).toString(
          'latin1',
        ); // one flat string, not a rope of concatenations
        const before = retainedHeapBytes();
        attempt(parse, text);
        expect({ unit, tooMuch: retainedHeapBytes() - before > 10 * text.length }).toEqual({
          unit,
          tooMuch: false,
        });
      }
    },
  );
});

/**
 * Returns the heap use without the young generation, which is mostly garbage. V8 moves objects that
 * a parser holds for long to the other generations.
 */
function retainedHeapBytes(): number {
  const kept = getHeapSpaceStatistics().filter(({ space_name: name }) => name !== 'new_space');
  return kept.reduce((sum, { space_used_size: used }) => sum + used, 0);
}

/**
 * Returns true when each of several runs takes more than 100 ms of CPU time. Other work on the
 * machine only lengthens a run, so one short run shows what the parser itself needs; a parser whose
 * time grows with the square of the text needs seconds in every run.
 */
function isSlow(run: () => void): boolean {
  return Array.from({ length: 5 }).every(() => {
    const before = process.cpuUsage();
    run();
    const used = process.cpuUsage(before);
    return used.user + used.system > 100_000;
  });
}

/** Parses a text, which may be malformed. */
function attempt(parse: (text: string) => unknown, text: string): void {
  try {
    parse(text);
  } catch (reason) {
    expect(reason).toBeInstanceOf(MalformedCgroupFileError);
  }
}

describe('workingSetBytes', () => {
  it('subtracts reclaimable page cache and is never below 0', () => {
    expect(workingSetBytes(100, { inactiveFileBytes: 30 })).toBe(70);
    expect(workingSetBytes(100, { inactiveFileBytes: 130 })).toBe(0);
  });
});
