/**
 * Position of a replica in its life: `starting → running → stopping → stopped`; `failed` and
 * `succeeded` are final too.
 */
export type ReplicaPhase = 'starting' | 'running' | 'stopping' | 'stopped' | 'failed' | 'succeeded';

const PHASE_RANK: Record<ReplicaPhase, number> = {
  starting: 0,
  running: 1,
  stopping: 2,
  stopped: 3,
  failed: 3,
  succeeded: 3,
};

/**
 * Returns true when a replica may change from one phase to the other: only forward, never from a
 * final phase to another phase.
 */
export function isForward(from: ReplicaPhase, to: ReplicaPhase): boolean {
  return from === to || PHASE_RANK[to] > PHASE_RANK[from];
}

/** Returns true when an unknown value, such as a value read from a file, is a phase. */
export function isPhase(value: unknown): value is ReplicaPhase {
  return typeof value === 'string' && Object.hasOwn(PHASE_RANK, value);
}

/** Returns true for a final phase: no container of the replica will run again. */
export function isEnded(phase: ReplicaPhase): boolean {
  return PHASE_RANK[phase] === 3;
}
