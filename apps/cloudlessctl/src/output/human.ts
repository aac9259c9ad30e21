import type { Duration, Timestamp } from '@bufbuild/protobuf/wkt';
import { formatZonedTime } from './local-time.js';
import { timestampMs } from './timestamp.js';

/**
 * Formats the age of a time: `0s`, `59s`, `5m`, `3h`, `12d`. Empty without a time; `0s` for a time
 * in the future.
 */
export function formatAge(time: Timestamp | undefined, nowMs: number): string {
  return time === undefined ? '' : formatSpan(nowMs - timestampMs(time));
}

/**
 * Formats milliseconds for people, rounded down: seconds below 2 minutes, minutes and seconds below
 * 10 minutes, minutes below 3 hours, hours below 2 days, then days. Negative values are `0s`.
 */
export function formatSpan(spanMs: number): string {
  const seconds = Math.max(0, Math.floor(spanMs / 1000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 === 0 ? `${minutes}m` : `${minutes}m${seconds % 60}s`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h` : `${Math.floor(hours / 24)}d`;
}

/** Formats a duration as in manifests: `500ms`, `10s`, `1h30m`. */
export function formatDuration(duration: Duration): string {
  const { seconds, nanos } = duration;
  if (seconds === 0n)
    return nanos % 1_000_000 === 0 && nanos !== 0
      ? `${nanos / 1_000_000}ms`
      : nanos === 0
        ? '0s'
        : `${nanos}ns`;
  if (nanos !== 0) return `${Number(seconds) + nanos / 1e9}s`;
  const hours = seconds / 3600n;
  const minutes = (seconds % 3600n) / 60n;
  return `${hours === 0n ? '' : `${hours}h`}${minutes === 0n ? '' : `${minutes}m`}${seconds % 60n === 0n ? '' : `${seconds % 60n}s`}`;
}

/** Formats bytes with a binary unit and at most one decimal: `64Mi`, `1.5Gi`, `0`. */
export function formatBytes(bytes: bigint): string {
  let value = Number(bytes);
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits).replace(/\.0$/, '')}${BYTE_UNITS[unit] ?? ''}`;
}

const BYTE_UNITS = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi'];

/** Formats bits per second with a decimal unit and at most one decimal: `1.5 Gbit/s`, `0`. */
export function formatBandwidth(bitsPerSecond: bigint | undefined): string {
  if (bitsPerSecond === undefined) return '';
  if (bitsPerSecond === 0n) return '0';
  let value = Number(bitsPerSecond);
  let unit = 0;
  while (value >= 1000 && unit < BIT_UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value.toFixed(1).replace(/\.0$/, '')} ${BIT_UNITS[unit] ?? ''}bit/s`;
}

const BIT_UNITS = ['', 'k', 'M', 'G', 'T'];

/** Formats thousandths of a core: `250m`, `2`. */
export function formatCpu(millis: number): string {
  return millis % 1000 === 0 ? String(millis / 1000) : `${millis}m`;
}

/**
 * Formats a time to the second with its offset from UTC: `2026-01-31T13:00:00+01:00`, or with `Z`
 * for an offset of 0.
 * @param timeMs - Milliseconds since the epoch.
 * @param offsetMinutes - Minutes that the shown time is ahead of UTC.
 */
export function formatInstant(timeMs: number, offsetMinutes: number): string {
  const wholeSecond = Math.floor(timeMs / 1000) * 1000;
  return formatZonedTime(wholeSecond, offsetMinutes).replace('.000', '');
}

/** Formats labels as `a=1,b=2`, sorted by key. A label without a value is its key. */
export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => (value === '' ? key : `${key}=${value}`))
    .join(',');
}

/**
 * Formats an enum name for tables: `READY` as `Ready`, `ROLLED_BACK` as `RolledBack`, `CLUSTER_IP` as
 * `ClusterIP`.
 */
export function formatWord(name: string): string {
  return name
    .split('_')
    .map((part) => ABBREVIATIONS[part] ?? part.slice(0, 1) + part.slice(1).toLowerCase())
    .join('');
}

const ABBREVIATIONS: Readonly<Record<string, string>> = { IP: 'IP', IPS: 'IPs' };

/** Formats a number with a noun: `1 replica`, `2 replicas`. */
export function formatCount(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
