import fc from 'fast-check';
import { cpuMillisBetween, ratesBetween, type ContainerSample } from '../index.js';

describe('cpuMillisBetween', () => {
  it.each([
    { name: 'the use of one CPU', used: 1_000_000_000n, elapsedMs: 1_000, millis: 1_000 },
    { name: 'the use of a quarter of a CPU', used: 500_000_000n, elapsedMs: 2_000, millis: 250 },
    { name: 'no use', used: 0n, elapsedMs: 1_000, millis: 0 },
    { name: 'a counter reset', used: -1n, elapsedMs: 1_000, millis: undefined },
    { name: 'no time between the readings', used: 1n, elapsedMs: 0, millis: undefined },
  ])('returns $millis for $name', ({ used, elapsedMs, millis }) => {
    const earlier = { usageNsec: 5_000_000_000n, atMs: 10 };
    expect(
      cpuMillisBetween(earlier, { usageNsec: earlier.usageNsec + used, atMs: 10 + elapsedMs }),
    ).toBe(millis);
  });
});

const io = (readBytes: bigint) => ({
  readBytes,
  writeBytes: 50n,
  readOperations: 5n,
  writeOperations: 2n,
});
const network = (sentBytes: bigint) => ({
  receivedBytes: 0n,
  receivedPackets: 0n,
  receivedErrors: 0n,
  receivedDropped: 0n,
  sentBytes,
  sentPackets: 3n,
  sentErrors: 0n,
  sentDropped: 0n,
});
const throttling = (periods: bigint, throttledPeriods: bigint) => ({
  periods,
  throttledPeriods,
  throttledNsec: 0n,
});
const before: ContainerSample = {
  source: 'web',
  atMs: 1_000,
  cpu: {
    usageNsec: 1_000_000_000n,
    userNsec: 600_000_000n,
    systemNsec: 400_000_000n,
    throttling: throttling(10n, 2n),
  },
  io: io(100n),
  network: network(1_000n),
};
const after: ContainerSample = {
  source: 'web',
  atMs: 3_000,
  cpu: {
    usageNsec: 1_500_000_000n,
    userNsec: 900_000_000n,
    systemNsec: 600_000_000n,
    throttling: throttling(30n, 17n),
  },
  io: io(401n),
  network: network(5_000n),
};

describe('ratesBetween', () => {
  it('returns CPU rates in thousandths, a throttling ratio, and other rates per second', () => {
    expect(ratesBetween(before, after)).toEqual({
      cpuMillis: 250,
      cpuUserMillis: 150,
      cpuSystemMillis: 100,
      throttledPeriodsRatio: 0.75,
      readBytesPerSecond: 150.5,
      writeBytesPerSecond: 0,
      readOperationsPerSecond: 0,
      writeOperationsPerSecond: 0,
      receivedBytesPerSecond: 0,
      receivedPacketsPerSecond: 0,
      sentBytesPerSecond: 2_000,
      sentPacketsPerSecond: 0,
    });
  });

  it.each([
    { name: 'no time has passed', change: { atMs: 1_000 } },
    { name: 'the time has decreased', change: { atMs: 999 } },
    { name: 'the time is not a number', change: { atMs: Number.NaN } },
    { name: 'the samples are of two containers', change: { source: 'db' } },
    {
      name: 'the CPU counter was reset',
      change: { cpu: { usageNsec: 999_999_999n } },
    },
  ])('returns no rate when $name', ({ change }) => {
    expect(ratesBetween(before, { ...after, ...change })).toEqual({});
  });

  it.each([
    { name: 'a device was removed', change: { io: io(99n) }, absent: /^(read|write)/ },
    {
      name: 'an interface was removed',
      change: { network: network(0n) },
      absent: /^(sent|received)/,
    },
    {
      name: 'the throttling counters were reset',
      change: { cpu: { ...after.cpu, usageNsec: 2_000_000_000n, throttling: throttling(3n, 3n) } },
      absent: /^throttled/,
    },
    {
      name: 'the CPU counters are missing',
      change: { cpu: undefined },
      absent: /^(cpu|throttled)/,
    },
    {
      name: 'the network counters are missing',
      change: { network: undefined },
      absent: /^(sent|received)/,
    },
  ])('omits only the rates of one part when $name', ({ change, absent }) => {
    const changed = Object.fromEntries(
      Object.entries({ ...after, ...change }).filter(([, value]) => value !== undefined),
    );
    const all = Object.keys(ratesBetween(before, after));
    const rates = Object.keys(ratesBetween(before, changed as unknown as ContainerSample));
    expect(rates).toEqual(all.filter((name) => !absent.test(name)));
    expect(rates.length).toBeLessThan(all.length);
  });

  it('omits the throttling ratio when the group ran in no period', () => {
    const idle = { ...after, cpu: { usageNsec: 1_000_000_000n, throttling: throttling(10n, 2n) } };
    expect(ratesBetween(before, idle)).not.toHaveProperty('throttledPeriodsRatio');
  });

  it('returns no negative and no undefined rate, whatever the counters', () => {
    const arbCounter = fc.option(fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }), { nil: undefined });
    const arbPart = (keys: readonly string[]) =>
      fc.option(fc.record(Object.fromEntries(keys.map((key) => [key, arbCounter]))));
    const arbSample = fc.record({
      source: fc.constantFrom('a', 'b'),
      atMs: fc.oneof(fc.double(), fc.nat()),
      cpu: arbPart(['usageNsec', 'userNsec', 'systemNsec']),
      io: arbPart(Object.keys(io(0n))),
      network: arbPart(Object.keys(network(0n))),
    });
    fc.assert(
      fc.property(arbSample, arbSample, (one, two) => {
        const rates = ratesBetween(
          one as unknown as ContainerSample,
          two as unknown as ContainerSample,
        );
        for (const rate of Object.values(rates)) expect(rate).toBeGreaterThanOrEqual(0);
      }),
    );
  });
});
