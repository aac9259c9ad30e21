import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { Welcome } from '@cloudless/api';

/**
 * Approximate time to admit one agent on one core of a small machine. The reconnects of all agents
 * are spread over the time that all admissions take.
 */
const ADMISSION_MS = 0.5;
/**
 * Bounds of the longest pause between two dials of an agent: not so short that the agents of a
 * small cluster dial all the time, not so long that a restarted coordinator waits for agents.
 */
const PAUSE_MAX_BOUNDS_MS = { min: 1_000, max: 10_000 } as const;
/**
 * Largest share of the lease by which an agent may delay its first dial: a node whose connection
 * breaks once must not lose its lease.
 */
const SPREAD_LEASE_RATIO = 1 / 3;

/**
 * Computes how agents delay their dials when all of them lose their sessions at once.
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
      Math.min(PAUSE_MAX_BOUNDS_MS.max, Math.max(PAUSE_MAX_BOUNDS_MS.min, allMs)),
    ),
  };
}
