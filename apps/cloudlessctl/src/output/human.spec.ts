import { create } from '@bufbuild/protobuf';
import { DurationSchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  formatCount,
  formatAge,
  formatBytes,
  formatCpu,
  formatDuration,
  formatInstant,
  formatLabels,
  formatSpan,
  formatWord,
} from './human.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

describe('formatSpan', () => {
  it.each([
    [-5, '0s'],
    [999, '0s'],
    [SECOND, '1s'],
    [119 * SECOND, '119s'],
    [2 * MINUTE, '2m'],
    [2 * MINUTE + SECOND, '2m1s'],
    [10 * MINUTE - SECOND, '9m59s'],
    [10 * MINUTE + 59 * SECOND, '10m'],
    [3 * HOUR - MINUTE, '179m'],
    [3 * HOUR, '3h'],
    [48 * HOUR - MINUTE, '47h'],
    [48 * HOUR, '2d'],
    [12 * 24 * HOUR, '12d'],
  ])('formats %i ms as %s', (ms, text) => {
    expect(formatSpan(ms)).toBe(text);
  });
});

describe('formatAge', () => {
  it('returns the time since a timestamp, and an empty text without a timestamp', () => {
    expect(formatAge(timestampFromMs(5 * SECOND), 8 * SECOND)).toBe('3s');
    expect(formatAge(timestampFromMs(9 * SECOND), 8 * SECOND)).toBe('0s');
    expect(formatAge(undefined, 8 * SECOND)).toBe('');
  });
});

describe('formatDuration', () => {
  it.each([
    [0, 0, '0s'],
    [0, 500_000_000, '500ms'],
    [0, 1_500, '1500ns'],
    [1, 500_000_000, '1.5s'],
    [10, 0, '10s'],
    [60, 0, '1m'],
    [90, 0, '1m30s'],
    [3_600, 0, '1h'],
    [5_405, 0, '1h30m5s'],
  ])('formats %i s and %i ns as %s', (seconds, nanos, text) => {
    expect(formatDuration(create(DurationSchema, { seconds: BigInt(seconds), nanos }))).toBe(text);
  });
});

describe('formatBytes', () => {
  it.each([
    [0n, '0'],
    [1_023n, '1023'],
    [1_024n, '1Ki'],
    [1_536n, '1.5Ki'],
    [64n << 20n, '64Mi'],
    [(3n << 30n) / 2n, '1.5Gi'],
    [(1_001n << 20n) / 10n, '100Mi'],
    [1n << 60n, '1024Pi'],
    [-2_048n, '-2Ki'],
  ])('formats %i bytes as %s', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });
});

describe('formatCpu', () => {
  it('formats whole cores as a number, and other values as thousandths', () => {
    expect([formatCpu(0), formatCpu(250), formatCpu(2_000)]).toEqual(['0', '250m', '2']);
  });
});

describe('formatLabels', () => {
  it('sorts labels by key, and omits the equals sign of an empty value', () => {
    expect(formatLabels({ b: '2', a: '1', c: '' })).toBe('a=1,b=2,c');
  });
});

describe('formatWord', () => {
  it('formats an enum name in camel case', () => {
    expect(formatWord('ROLLED_BACK')).toBe('RolledBack');
  });
});

describe('formatCount', () => {
  it('appends a plural s unless the number is 1', () => {
    expect([formatCount(0, 'node'), formatCount(1, 'node'), formatCount(2, 'node')]).toEqual([
      '0 nodes',
      '1 node',
      '2 nodes',
    ]);
  });
});

describe('formatInstant', () => {
  it.each([
    [0, '2026-01-31T12:00:00Z'],
    [60, '2026-01-31T13:00:00+01:00'],
    [-210, '2026-01-31T08:30:00-03:30'],
    [345, '2026-01-31T17:45:00+05:45'],
    [-720, '2026-01-31T00:00:00-12:00'],
    [840, '2026-02-01T02:00:00+14:00'],
  ])('formats a time at %i minutes ahead of UTC', (offset, text) => {
    expect(formatInstant(Date.UTC(2026, 0, 31, 12, 0, 0, 999), offset)).toBe(text);
  });
});
