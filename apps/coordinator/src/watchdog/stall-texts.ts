import type { WatchedCall } from './store-call-marks.js';

const CHECK_STORE = 'check the disk of the data directory, or etcd';

/** What stalled, and what to check. */
const TEXTS: Readonly<Record<WatchedCall | 'loop', readonly [subject: string, remedy: string]>> = {
  write: ['a write to the state store has not returned', CHECK_STORE],
  lease: ['the renewal of a lease in the state store has not returned', CHECK_STORE],
  loop: ['the main loop has not turned', 'the coordinator is overloaded, or has a defect'],
};

/** Describes a stall, for /health, the log and standard error. */
export function describeStall(stalled: WatchedCall | 'loop', stalledMs: number): string {
  const [subject, remedy] = TEXTS[stalled];
  return `${subject} for ${Math.floor(stalledMs / 1_000)} s; ${remedy}`;
}
