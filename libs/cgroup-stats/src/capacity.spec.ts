import fc from 'fast-check';
import { computeCapacity, parseCpuMax, computePressure, quotaToMillis } from './index.js';

const MIB = 2 ** 20;
const GIB = 1_073_741_824;
/** A file system without a fixed number of inodes. */
const NO_INODES = { inodesUsed: 0, inodesTotal: 0 };
const quota = (quotaUsec: number) => ({ quotaUsec, periodUsec: 100_000 });

describe('computeCapacity', () => {
  it.each([
    {
      name: 'no limits',
      limits: {},
      cpuMillis: 4_000,
      memoryBytes: 8 * GIB,
      cpuIsLimited: false,
      memoryIsLimited: false,
    },
    {
      name: 'a quota',
      limits: { cpuQuota: quota(150_000) },
      cpuMillis: 1_500,
      memoryBytes: 8 * GIB,
      cpuIsLimited: true,
      memoryIsLimited: false,
    },
    {
      name: 'a quota above the machine',
      limits: { cpuQuota: quota(900_000) },
      cpuMillis: 4_000,
      memoryBytes: 8 * GIB,
      cpuIsLimited: false,
      memoryIsLimited: false,
    },
    {
      name: 'a tiny quota',
      limits: { cpuQuota: { quotaUsec: 1, periodUsec: 1_000_000 } },
      cpuMillis: 1,
      memoryBytes: 8 * GIB,
      cpuIsLimited: true,
      memoryIsLimited: false,
    },
    {
      name: 'a memory limit',
      limits: { memoryLimitBytes: GIB },
      cpuMillis: 4_000,
      memoryBytes: GIB,
      cpuIsLimited: false,
      memoryIsLimited: true,
    },
    {
      name: 'a memory limit above the machine',
      limits: { memoryLimitBytes: 9 * GIB },
      cpuMillis: 4_000,
      memoryBytes: 8 * GIB,
      cpuIsLimited: false,
      memoryIsLimited: false,
    },
  ])(
    'returns $cpuMillis m and $memoryBytes bytes for $name',
    ({ limits, cpuMillis, memoryBytes, cpuIsLimited, memoryIsLimited }) => {
      const capacity = { cpuMillis, memoryBytes, cpuIsLimited, memoryIsLimited };
      expect(computeCapacity({ cpuCount: 4, memoryTotalBytes: 8 * GIB, ...limits })).toEqual(
        capacity,
      );
    },
  );
});

describe('quotaToMillis', () => {
  it('rounds down to whole thousandths', () => {
    expect(quotaToMillis({ quotaUsec: 99_999, periodUsec: 100_000 })).toBe(999);
  });
});

describe('computePressure', () => {
  const pressureAt = (percent: number, before: boolean) =>
    computePressure(
      {
        memoryUsedBytes: percent * 10,
        memoryTotalBytes: 1_000,
        diskUsedBytes: percent * 7,
        diskTotalBytes: 700,
        ...NO_INODES,
      },
      { memoryPressure: before, diskPressure: before, diskFull: false, inodesFull: false },
    );
  it.each([
    { percent: 0, before: false, expected: false },
    { percent: 85, before: false, expected: false },
    { percent: 85.1, before: false, expected: true },
    { percent: 100, before: false, expected: true },
    { percent: 82, before: false, expected: false },
    { percent: 82, before: true, expected: true },
    { percent: 80, before: true, expected: true },
    { percent: 79.9, before: true, expected: false },
  ])(
    'returns $expected at $percent % when the previous result was $before',
    ({ percent, before, expected }) => {
      expect(pressureAt(percent, before)).toMatchObject({
        memoryPressure: expected,
        diskPressure: expected,
      });
    },
  );

  it.each([
    { total: 20 * MIB, free: MIB, before: false, expected: false },
    { total: 20 * MIB, free: MIB - 1, before: false, expected: true },
    { total: 20 * MIB, free: 2 * MIB - 1, before: true, expected: true },
    { total: 20 * MIB, free: 2 * MIB, before: true, expected: false },
    { total: 1_000 * GIB, free: GIB, before: false, expected: false },
    { total: 1_000 * GIB, free: GIB - 1, before: false, expected: true },
    { total: 1_000 * GIB, free: 2 * GIB - 1, before: true, expected: true },
    { total: 1_000 * GIB, free: 2 * GIB, before: true, expected: false },
    { total: 0, free: 0, before: true, expected: true },
    { total: 0, free: 0, before: false, expected: false },
  ])(
    'says full: $expected for a disk of $total bytes with $free free bytes, before: $before',
    ({ total, free, before, expected }) => {
      const { diskFull } = computePressure(
        {
          ...{ memoryUsedBytes: 0, memoryTotalBytes: 0 },
          ...{ diskUsedBytes: total - free, diskTotalBytes: total, ...NO_INODES },
        },
        { memoryPressure: false, diskPressure: false, diskFull: before, inodesFull: false },
      );
      expect(diskFull).toBe(expected);
    },
  );

  it.each([
    { total: 400, free: 20, before: false, expected: false },
    { total: 400, free: 19, before: false, expected: true },
    { total: 400, free: 39, before: true, expected: true },
    { total: 400, free: 40, before: true, expected: false },
    { total: 10_000_000, free: 1_000, before: false, expected: false },
    { total: 10_000_000, free: 999, before: false, expected: true },
    { total: 10_000_000, free: 1_999, before: true, expected: true },
    { total: 10_000_000, free: 2_000, before: true, expected: false },
    { total: 0, free: 0, before: false, expected: false },
    { total: 0, free: 0, before: true, expected: false },
  ])(
    'says without inodes: $expected for $free free inodes of $total, before: $before',
    ({ total, free, before, expected }) => {
      const { diskFull, inodesFull } = computePressure(
        {
          ...{ memoryUsedBytes: 0, memoryTotalBytes: 0, diskUsedBytes: 0, diskTotalBytes: 100 },
          ...{ inodesUsed: total - free, inodesTotal: total },
        },
        { memoryPressure: false, diskPressure: false, diskFull: false, inodesFull: before },
      );
      expect([diskFull, inodesFull]).toEqual([false, expected]);
    },
  );

  it('decides memory and disk separately, starts without pressure, and ignores a total of 0', () => {
    const input = {
      memoryUsedBytes: 90,
      memoryTotalBytes: 100,
      diskUsedBytes: 81,
      diskTotalBytes: 100,
      ...NO_INODES,
    };
    expect(computePressure(input)).toEqual({
      ...{ memoryPressure: true, diskPressure: false, diskFull: false, inodesFull: false },
    });
    expect(
      computePressure(
        { ...input, memoryTotalBytes: 0 },
        { memoryPressure: true, diskPressure: true, diskFull: false, inodesFull: false },
      ),
    ).toEqual({
      memoryPressure: true,
      diskPressure: true,
      diskFull: false,
      inodesFull: false,
    });
  });

  it('changes at most once while the use stays within 5 % of the total', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 950 }),
        fc.array(fc.nat(50), { minLength: 2 }),
        (base, noise) => {
          let conditions = computePressure({
            memoryUsedBytes: 0,
            memoryTotalBytes: 1_000,
            diskUsedBytes: 0,
            diskTotalBytes: 0,
            ...NO_INODES,
          });
          let changes = 0;
          for (const extra of noise) {
            const next = computePressure(
              {
                memoryUsedBytes: base + extra,
                memoryTotalBytes: 1_000,
                diskUsedBytes: 0,
                diskTotalBytes: 0,
                ...NO_INODES,
              },
              conditions,
            );
            if (next.memoryPressure !== conditions.memoryPressure) changes += 1;
            conditions = next;
          }
          expect(changes).toBeLessThanOrEqual(1);
        },
      ),
    );
  });
});

describe('computeCapacity with parseCpuMax', () => {
  it('returns the part of a machine that a group with a CPU quota may use', () => {
    const capacity = computeCapacity({
      cpuCount: 8,
      cpuQuota: parseCpuMax('250000 100000\n'),
      memoryTotalBytes: 16 * GIB,
    });
    expect(capacity).toEqual({
      cpuMillis: 2_500,
      memoryBytes: 16 * GIB,
      cpuIsLimited: true,
      memoryIsLimited: false,
    });
  });
});
