import { Event_Category as Category, Event_Severity as Severity, RolloutStatus_Phase as RolloutPhase } from '@cloudless/api';
import type { ControlRecord, VersionRecord } from '@cloudless/api/store';
import { versionKeyId } from '@cloudless/cluster-state';
import type { RolloutDecision } from '@cloudless/rollout';
import { changeOf } from './causes.js';
import { MAX_PASS_WRITES, type WorkloadPass } from './workload-pass.js';

/** Kept for undo. */
const MAX_VERSIONS = 10;

/** Keeps the rollout's phase and the generation this pass has acted upon. */
export function noteProgress({ next, workload, transaction, deleting, view }: WorkloadPass, decision: RolloutDecision): void {
  const { generation, version, namespace, name } = workload.value;
  next.observedGeneration = generation;
  if (deleting) return;
  const about = { severity: Severity.INFO, category: Category.ROLLOUT, namespace, workload: name };
  if (next.activeVersion !== version && next.rolloutPhase !== RolloutPhase.IN_PROGRESS) {
    next.rolloutPhase = RolloutPhase.IN_PROGRESS;
    const message =
      next.activeVersion === 0
        ? `version ${version} is being started`
        : `version ${version} replaces version ${next.activeVersion}`;
    transaction.event({ ...about, reason: 'RolloutStarted', message, causedBy: changeOf(view, workload.value) });
  }
  next.rolloutReason = decision.kind === 'waiting' ? decision.reason.text : '';
  if (decision.kind === 'converged' && next.activeVersion !== version) {
    next.activeVersion = version;
    next.rolloutPhase = RolloutPhase.COMPLETED;
    transaction.event({
      ...about,
      reason: 'RolloutCompleted',
      message: `version ${version} is rolled out: nothing of another one is left`,
      causedBy: view.lastEvent({ kind: 'workload', namespace, name }, ['RolloutStarted']),
    });
  }
}

/** Keeps the newest versions and those that replicas still run. @param versions - Ascending. */
export function pruneVersions({ workload, replicas, transaction }: WorkloadPass, versions: readonly VersionRecord[]): void {
  const inUse = new Set(replicas.map(({ value }) => value.version));
  for (const { version } of versions.slice(0, Math.max(0, versions.length - MAX_VERSIONS))) {
    if (transaction.size >= MAX_PASS_WRITES) return;
    if (!inUse.has(version)) transaction.delete('version', versionKeyId(workload.value.uid, version));
  }
}

/** Whether a pass has nothing to write into the control record. */
export function sameControl(a: ControlRecord, b: ControlRecord): boolean {
  return (
    a.observedGeneration === b.observedGeneration &&
    a.activeVersion === b.activeVersion &&
    a.rolloutPhase === b.rolloutPhase &&
    a.rolloutReason === b.rolloutReason &&
    a.nextSequence === b.nextSequence
  );
}
