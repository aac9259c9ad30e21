import fc from 'fast-check';
import { groupFiles, toSample, type GroupPart, type SampleTexts } from '../index.js';

const v1 = (texts: Readonly<Record<string, string>>) => ({ version: 1, texts }) as const;
const v2 = (texts: Readonly<Record<string, string>>) => ({ version: 2, texts }) as const;
const sampleOf = (groups: SampleTexts['groups']) => toSample('web', 5, { groups });
const UNLIMITED = '9223372036854771712\n';

describe('toSample', () => {
  it.each([
    {
      name: 'the CPU part of v2: time and throttling from cpu.stat, limit from cpu.max',
      groups: {
        unified: v2({
          'cpu.stat': 'usage_usec 7\nnr_periods 3\nnr_throttled 2\nthrottled_usec 1\n',
        }),
        cpu: v2({ 'cpu.max': '20000 100000\n' }),
      },
      expected: {
        cpu: {
          usageNsec: 7_000n,
          throttling: { periods: 3n, throttledPeriods: 2n, throttledNsec: 1_000n },
          limitMillis: 200,
        },
      },
    },
    {
      name: 'the CPU part of v1: time from cpuacct, throttling and limit from cpu',
      groups: {
        cpuacct: v1({
          'cpuacct.usage': '9\n',
          'cpuacct.usage_user': '5\n',
          'cpuacct.usage_sys': '4\n',
        }),
        cpu: v1({
          'cpu.stat': 'nr_periods 3\nnr_throttled 2\nthrottled_time 1\n',
          'cpu.cfs_quota_us': '150000\n',
          'cpu.cfs_period_us': '100000\n',
        }),
      },
      expected: {
        cpu: {
          usageNsec: 9n,
          userNsec: 5n,
          systemNsec: 4n,
          throttling: { periods: 3n, throttledPeriods: 2n, throttledNsec: 1n },
          limitMillis: 1_500,
        },
      },
    },
    {
      name: 'the CPU part of a hybrid machine without a group in cpuacct: time from v2',
      groups: {
        unified: v2({ 'cpu.stat': 'usage_usec 7\n' }),
        cpu: v1({
          'cpu.stat': 'nr_periods 3\nnr_throttled 2\nthrottled_time 1\n',
          'cpu.cfs_quota_us': '-1\n',
          'cpu.cfs_period_us': '100000\n',
        }),
      },
      expected: {
        cpu: {
          usageNsec: 7_000n,
          throttling: { periods: 3n, throttledPeriods: 2n, throttledNsec: 1n },
        },
      },
    },
    {
      name: 'the CPU part of a hybrid machine with a group in cpuacct: time from v1',
      groups: {
        unified: v2({ 'cpu.stat': 'usage_usec 7\nuser_usec 5\n' }),
        cpuacct: v1({ 'cpuacct.usage': '9\n' }),
      },
      expected: { cpu: { usageNsec: 9n } },
    },
    {
      name: 'the memory part of v2',
      groups: {
        memory: v2({
          'memory.current': '100\n',
          'memory.max': 'max\n',
          'memory.peak': '120\n',
          'memory.swap.current': '7\n',
          'memory.swap.max': '0\n',
          'memory.stat': 'anon 40\nfile 50\ninactive_file 30\n',
        }),
      },
      expected: {
        memory: {
          usageBytes: 100,
          workingSetBytes: 70,
          peakBytes: 120,
          fileBytes: 50,
          anonBytes: 40,
          swapBytes: 7,
          swapLimitBytes: 0,
        },
      },
    },
    {
      name: 'the memory part of v2 before kernel 5.19, without swap',
      groups: { memory: v2({ 'memory.current': '100\n', 'memory.max': '4096\n' }) },
      expected: { memory: { usageBytes: 100, limitBytes: 4_096 } },
    },
    {
      name: 'the memory part of v1: swap from memory.stat, swap limit as a difference of two limits',
      groups: {
        memory: v1({
          'memory.usage_in_bytes': '100\n',
          'memory.limit_in_bytes': '4096\n',
          'memory.max_usage_in_bytes': '120\n',
          'memory.memsw.usage_in_bytes': '109\n',
          'memory.memsw.limit_in_bytes': '6144\n',
          'memory.stat':
            'inactive_file 0\ntotal_inactive_file 30\ntotal_cache 50\ntotal_rss 40\ntotal_swap 8\n',
        }),
      },
      expected: {
        memory: {
          usageBytes: 100,
          workingSetBytes: 70,
          limitBytes: 4_096,
          peakBytes: 120,
          fileBytes: 50,
          anonBytes: 40,
          swapBytes: 8,
          swapLimitBytes: 2_048,
        },
      },
    },
    {
      name: 'the memory part of v1 without memory.stat: swap as a difference of two amounts',
      groups: {
        memory: v1({
          'memory.usage_in_bytes': '100\n',
          'memory.limit_in_bytes': UNLIMITED,
          'memory.memsw.usage_in_bytes': '109\n',
          'memory.memsw.limit_in_bytes': UNLIMITED,
        }),
      },
      expected: { memory: { usageBytes: 100, swapBytes: 9 } },
    },
    {
      name: 'the block I/O part of v2',
      groups: { io: v2({ 'io.stat': '8:0 rbytes=1 wbytes=2 rios=3 wios=4\n' }) },
      expected: { io: { readBytes: 1n, writeBytes: 2n, readOperations: 3n, writeOperations: 4n } },
    },
    {
      name: 'the block I/O part of v1: recursive files where the kernel has them',
      groups: {
        io: v1({
          'blkio.throttle.io_service_bytes': '8:0 Read 1\n8:0 Write 2\nTotal 3\n',
          'blkio.throttle.io_serviced': '8:0 Read 3\n8:0 Write 4\nTotal 7\n',
          'blkio.throttle.io_service_bytes_recursive': '8:0 Read 10\n8:0 Write 20\nTotal 30\n',
        }),
      },
      expected: {
        io: { readBytes: 10n, writeBytes: 20n, readOperations: 3n, writeOperations: 4n },
      },
    },
    {
      name: 'no block I/O part of v1 without counted devices',
      groups: {
        io: v1({
          'blkio.throttle.io_service_bytes': 'Total 0\n',
          'blkio.throttle.io_serviced': 'Total 0\n',
        }),
      },
      expected: {},
    },
    {
      name: 'the pids part with a limit',
      groups: { pids: v1({ 'pids.current': '7\n', 'pids.max': '100\n' }) },
      expected: { pids: { current: 7, limit: 100 } },
    },
    {
      name: 'the pids part without a limit',
      groups: { pids: v2({ 'pids.current': '7\n', 'pids.max': 'max\n' }) },
      expected: { pids: { current: 7 } },
    },
    {
      name: 'the pressure part of the pressure files that the kernel has',
      groups: {
        unified: v2({ 'io.pressure': 'full avg10=1.00 avg60=0.00 avg300=0.00 total=2\n' }),
      },
      expected: {
        pressure: {
          io: { full: { avg10Percent: 1, avg60Percent: 0, avg300Percent: 0, totalNsec: 2_000n } },
        },
      },
    },
    { name: 'no part from no files', groups: {}, expected: {} },
  ])('builds $name', ({ groups, expected }) => {
    const { sample, problems } = sampleOf(groups);
    const { origin: _, ...values } = sample;
    expect({ sample: values, problems }).toEqual({
      sample: { source: 'web', atMs: 5, ...expected },
      problems: [],
    });
  });

  it.each([
    { groups: { pids: v1({ 'pids.current': '1\n' }) }, origin: 'v1' },
    { groups: { pids: v2({ 'pids.current': '1\n' }), memory: v2({}) }, origin: 'v2' },
    {
      groups: {
        pids: v1({ 'pids.current': '1\n' }),
        unified: v2({ 'cpu.stat': 'usage_usec 7\n' }),
      },
      origin: 'hybrid',
    },
    { groups: { pids: v1({ 'pids.current': '1\n' }), unified: v2({}) }, origin: 'v1' },
    { groups: {}, origin: undefined },
  ] as const)('returns the origin $origin', ({ groups, origin }) =>
    expect(sampleOf(groups).sample.origin).toBe(origin),
  );

  it('omits the parts of malformed files and returns an error for each', () => {
    const { sample, problems } = toSample('web', 5, {
      groups: {
        memory: v2({ 'memory.current': '100\n', 'memory.stat': 'inactive_file\n' }),
        pids: v2({ 'pids.current': 'many\n' }),
        io: v2({ 'io.stat': '' }),
      },
      netDev: 'eth0\n',
    });
    expect(Object.keys(sample)).toEqual(['source', 'origin', 'atMs', 'io']);
    expect(problems.map(({ message }) => message)).toEqual([
      'memory.stat:1: a line without a value',
      '/proc/<pid>/net/dev:1: the headings differ from the documented ones',
      'pids.current:1: "many" is not a whole number',
    ]);
  });

  it('returns a sample and MalformedCgroupFileErrors for any texts', () => {
    const arbTexts = (part: GroupPart, version: 1 | 2) =>
      fc.record(
        Object.fromEntries(
          groupFiles[part][version].map((name) => [name, fc.string({ unit: 'binary' })]),
        ),
        {
          requiredKeys: [],
        },
      );
    const arbGroup = (part: GroupPart) =>
      fc
        .constantFrom<1 | 2>(1, 2)
        .chain((version) =>
          fc.record({ version: fc.constant(version), texts: arbTexts(part, version) }),
        );
    const parts = Object.keys(groupFiles) as GroupPart[];
    const arbGroups = fc.record(Object.fromEntries(parts.map((part) => [part, arbGroup(part)])), {
      requiredKeys: [],
    });
    fc.assert(
      fc.property(arbGroups, fc.string({ unit: 'binary' }), (groups, netDev) => {
        const { sample, problems } = toSample('web', 5, { groups, netDev } as SampleTexts);
        expect(sample).toMatchObject({ source: 'web', atMs: 5 });
        for (const problem of problems)
          expect(problem).toMatchObject({ name: 'MalformedCgroupFileError', kind: 'invalid' });
      }),
    );
  });
});
