import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { Welcome } from '@cloudless/api';

/**
 * Approximate time to admit one agent on one core of a small machine. Reconnects of all agents are
 * spread accordingly.
 */
const ADMISSION_MS = 0.5;
/** Bounds of the longest pause between two dials of an agent. */
const MAX_PAUSE_MS = { least: 1_000, most: 10_000 };
/**
 * Largest share of the lease by which the first dial is delayed: a single broken connection must
 * not cost a node its lease.
 */
const SPREAD_LEASE_RATIO = 1 / 3;

/**
 * Computes the reconnect times of agents for the case that all lose their sessions at once.
 * @param nodes - Number of registered nodes.
 */
export function computeReconnectTimes(
  nodes: number,
  leaseMs: number,
): Pick<Welcome, 'reconnectSpread' | 'reconnectPauseMax'> {
  const allMs = nodes * ADMISSION_MS;
  return {
    reconnectSpread: durationFromMs(Math.min(allMs, leaseMs * SPREAD_LEASE_RATIO)),
    reconnectPauseMax: durationFromMs(
      Math.min(MAX_PAUSE_MS.most, Math.max(MAX_PAUSE_MS.least, allMs)),
    ),
  };
}
