import {
  WorkQueue,
  logFailure,
  noMeter,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type WorkResult,
} from '@cloudless/base';
import {
  advanceRotation,
  getRotationProgress,
  putRotationPhase,
  type ClusterState,
  type RecordKind,
} from '@cloudless/cluster-state';
import { CertificateAuthorityRotation_Phase as Phase } from '@cloudless/api';
import { commitOrReconcileAgain } from '../common/commit.js';

export interface RotationReconcilerDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
}

/** Longest pause between two checks of a rotation that waits for a time. */
const MAX_WAIT_MS = 60_000;

const KINDS: readonly RecordKind[] = ['ca', 'node', 'credential', 'ban', 'meta', 'coordinator'];

/**
 * Moves the rotation of the certificate authority to its next phase once no node and no user must
 * be waited for. Level-triggered and without state of its own, so a rotation continues after a
 * crash at any step.
 */
export class RotationReconciler {
  private readonly queue: WorkQueue<'rotation'>;
  private readonly unsubscribe: () => void;

  constructor(private readonly deps: RotationReconcilerDeps) {
    this.queue = new WorkQueue<'rotation'>({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'rotation' },
      handle: () => this.reconcile(),
      onError: (_key, reason) => logFailure(deps.log, 'rotation reconcile failed', reason),
      backoff: { firstMs: 100, maxMs: 30_000, jitter: 0.2 },
    });
    this.queue.wake('rotation');
    this.unsubscribe = deps.state.subscribe((changes) => {
      if (changes.some(({ kind }) => KINDS.includes(kind))) this.queue.wake('rotation');
    });
  }

  async close(): Promise<void> {
    this.unsubscribe();
    await this.queue.stop();
  }

  /** Runs one pass. */
  async reconcile(): Promise<WorkResult> {
    const { state, clock, log } = this.deps;
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (state.storeRolledBack !== undefined) return { kind: 'done' };
    const view = state.view();
    const stored = view.certificateAuthority();
    const nowMs = clock.wallTime();
    const progress = getRotationProgress(view, nowMs);
    if (stored === undefined || progress === undefined) return { kind: 'done' };
    // The coordinators fetch the keys by themselves, which changes the record.
    if (progress.waitingCoordinators.length > 0) return { kind: 'done' };
    if (progress.nextAtMs !== undefined)
      return { kind: 'after', delayMs: clamp(progress.nextAtMs - nowMs) };
    const after = advanceRotation(stored.value, nowMs);
    const result = await commitOrReconcileAgain(
      state,
      putRotationPhase(state.transaction(), stored, after),
    );
    log.info('rotation of the certificate authority advanced', {
      phase: Phase[after.rotation?.phase ?? Phase.PHASE_UNSPECIFIED],
    });
    return result;
  }
}

function clamp(delayMs: number): number {
  return Math.min(MAX_WAIT_MS, Math.max(1, delayMs));
}
