import type { WatchedCall } from './store-call-marks.js';

const SUBJECTS: Readonly<Record<WatchedCall, string>> = {
  write: 'a write to the state store has not returned',
  lease: 'the renewal of a lease in the state store has not returned',
};

/** Describes a stall, for /health, the log and standard error. */
export function describeStall(call: WatchedCall, stalledMs: number): string {
  return `${SUBJECTS[call]} for ${Math.floor(stalledMs / 1_000)} s; check the disk of the data directory, or etcd`;
}
