import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import type { Welcome } from '@cloudless/api';
import type { PingTimes } from './ping-monitor.js';

/** Times until a Welcome sets others. */
export const DEFAULT_TIMES: PingTimes = { pingIntervalMs: 900, leaseMs: 3_000 };
const DEFAULT_USAGE_INTERVAL_MS = 10_000;

/** Returns the times of pings that a Welcome sets; a time that is not positive has its default. */
export function toPingTimes(welcome: Welcome): PingTimes {
  return {
    pingIntervalMs: toPositiveMs(welcome.pingInterval, DEFAULT_TIMES.pingIntervalMs),
    leaseMs: toPositiveMs(welcome.lease, DEFAULT_TIMES.leaseMs),
  };
}

/** Returns the interval of reports of usage that a Welcome sets, milliseconds; default 10 s. */
export function toUsageIntervalMs(welcome: Welcome): number {
  return toPositiveMs(welcome.usageInterval, DEFAULT_USAGE_INTERVAL_MS);
}

function toPositiveMs(duration: Duration | undefined, defaultMs: number): number {
  const ms = duration === undefined ? 0 : durationMs(duration);
  return ms > 0 ? ms : defaultMs;
}
