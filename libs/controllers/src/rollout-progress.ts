import { clone, create, equals } from '@bufbuild/protobuf';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  WorkloadSpecSchema,
  type Event,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  VersionRecordSchema,
  type ControlRecord,
  type VersionRecord,
} from '@cloudless/api/store';
import {
  canonicalVersion,
  putSpecChange,
  specOfVersion,
  versionKeyId,
  type EventInit,
} from '@cloudless/cluster-state';
import {
  advanceRollout,
  type RolloutAdvance,
  type RolloutNews,
  type RolloutObserved,
} from '@cloudless/rollout';
import { changeOf } from './causes.js';
import { failuresOf, toRolloutFailure } from './rollout-failure.js';
import { keepRolloutState, toRolloutState, toSettings } from './rollout-state.js';
import { MAX_PASS_WRITES, type WorkloadPass } from './workload-pass.js';

/** Versions that are kept for `UndoRollout`. */
const MAX_VERSIONS = 10;

/**
 * Advances the rollout of a pass by one decision, and writes its new state and its events into the
 * pass. The caller applies the steps.
 */
export function advancePass(
  pass: WorkloadPass,
  observed: RolloutObserved,
  nowMs: number,
): RolloutAdvance {
  const { next, workload, view } = pass;
  const { uid, version, generation, spec } = workload.value;
  const state = toRolloutState(next);
  const replicas = pass.replicas.map(({ value }) => value);
  const begins = state.version !== version;
  const sources = { view, rollout: next.rollout };
  const failures = begins
    ? 0
    : (next.rollout?.failedGone ?? 0) +
      sum(replicas.map((replica) => failuresOf(sources, replica)));
  const advance = advanceRollout(state, {
    settings: toSettings(spec ?? create(WorkloadSpecSchema)),
    version,
    canonical: (number) => canonicalVersion(view, uid, number),
    observed,
    pausedByUser: next.pausedVersion === version,
    failures,
    changed: next.observedGeneration !== generation,
    nowMs,
  });
  keepRolloutState(next, advance.state);
  next.observedGeneration = generation;
  if (next.rollout !== undefined) {
    next.rollout.failedNew = failures;
    if (begins) Object.assign(next.rollout, { firstSequence: next.nextSequence, failedGone: 0 });
  }
  keepFailure(pass, advance, begins, nowMs);
  for (const news of advance.news) tell(pass, news);
  if (next.activeVersion !== state.activeVersion) keepAsRolledOut(pass);
  if (advance.rollBackTo !== undefined) rollBack(pass, advance.rollBackTo, nowMs);
  return advance;
}

/**
 * Updates the failure in the control record. It is kept until the next rollout begins, and during
 * the rollback that it caused.
 */
function keepFailure(
  { next, replicas, view }: WorkloadPass,
  { state, news }: RolloutAdvance,
  begins: boolean,
  nowMs: number,
): void {
  if (next.rollout === undefined) return;
  // A rollback may begin and end in one pass; only its phase shows it then.
  const over = begins
    ? state.rollsBack === 0 && state.phase !== 'rolledBack'
    : state.phase === 'completed';
  if (over) delete next.rollout.failure;
  if (!news.some(({ kind }) => kind === 'failed')) return;
  const values = replicas.map(({ value }) => value);
  const failure = toRolloutFailure({ view, rollout: next.rollout }, values, {
    reason: state.reason,
    version: state.version,
    nowMs,
  });
  next.rollout.failure = failure;
  next.rolloutReason = failure.reason;
}

/** Marks the newly active version as one that `UndoRollout` may return to. */
function keepAsRolledOut({ next, versions, workload, transaction }: WorkloadPass): void {
  const kept = versions.find(({ version }) => version === next.activeVersion);
  if (kept === undefined || kept.rolledOut) return;
  const record = Object.assign(clone(VersionRecordSchema, kept), { rolledOut: true });
  transaction.put('version', versionKeyId(workload.value.uid, kept.version), record);
}

function rollBack(pass: WorkloadPass, version: number, nowMs: number): void {
  const { transaction, workload, next } = pass;
  const kept = pass.versions.find((record) => record.version === version);
  const spec = workload.value.spec;
  if (kept === undefined || spec === undefined) return; // the rollout stays failed
  const cause = `rollback to version ${version}`;
  const record = putSpecChange(transaction, { versions: () => pass.versions }, workload, {
    spec: specOfVersion(spec, kept),
    requestId: '',
    nowMs,
    cause,
  });
  transaction.event({
    ...about(pass),
    severity: Severity.WARNING,
    reason: 'WorkloadRolledBack',
    message: `version ${record.version} is the template of version ${version} again, as version ${workload.value.version} failed: ${next.rolloutReason}`,
  });
}

const told: Readonly<
  Record<RolloutNews['kind'], { readonly reason: string; readonly severity: Severity }>
> = {
  started: { reason: 'RolloutStarted', severity: Severity.INFO },
  completed: { reason: 'RolloutCompleted', severity: Severity.INFO },
  failed: { reason: 'RolloutFailed', severity: Severity.ERROR },
  rolledBack: { reason: 'RolloutRolledBack', severity: Severity.WARNING },
  paused: { reason: 'RolloutPaused', severity: Severity.INFO },
  resumed: { reason: 'RolloutResumed', severity: Severity.INFO },
  stageReached: { reason: 'RolloutStepReached', severity: Severity.INFO },
  awaitsPromotion: { reason: 'RolloutAwaitsPromotion', severity: Severity.INFO },
  switched: { reason: 'TrafficSwitched', severity: Severity.INFO },
};

function tell(pass: WorkloadPass, { kind, message }: RolloutNews): void {
  const { next, transaction } = pass;
  const version = next.rollout?.version ?? 0;
  transaction.event({
    ...about(pass),
    ...told[kind],
    message: kind === 'failed' ? `version ${version} failed: ${next.rolloutReason}` : message,
    ...(kind === 'failed' ? { replicaId: next.rollout?.failure?.replicaId ?? '' } : {}),
    causedBy: causeOf(pass, kind),
  });
}

function causeOf({ view, workload }: WorkloadPass, kind: RolloutNews['kind']): Event | undefined {
  const { namespace, name } = workload.value;
  const last = (...reasons: string[]) =>
    view.lastEvent({ kind: 'workload', namespace, name }, reasons);
  if (kind === 'started') return changeOf(view, workload.value);
  if (kind === 'resumed') return last('RolloutResumeRequested');
  if (kind === 'paused') return last('RolloutPauseRequested');
  return last('RolloutStarted');
}

function about({ workload }: WorkloadPass): Pick<EventInit, 'category' | 'namespace' | 'workload'> {
  const { namespace, name } = workload.value;
  return { category: Category.ROLLOUT, namespace, workload: name };
}

/**
 * Deletes old versions. Keeps the newest {@link MAX_VERSIONS}, the active version, and versions
 * that replicas still run.
 * @param versions - Ascending.
 */
export function pruneVersions(
  { workload, replicas, transaction, next }: WorkloadPass,
  versions: readonly VersionRecord[],
): void {
  const inUse = new Set(replicas.map(({ value }) => value.version));
  for (const number of [next.activeVersion, next.rollout?.fromVersion ?? 0]) inUse.add(number);
  for (const { version } of versions.slice(0, Math.max(0, versions.length - MAX_VERSIONS))) {
    if (transaction.size >= MAX_PASS_WRITES) return;
    if (!inUse.has(version))
      transaction.delete('version', versionKeyId(workload.value.uid, version));
  }
}

export function sameControl(a: ControlRecord, b: ControlRecord): boolean {
  return equals(ControlRecordSchema, a, b);
}

const sum = (numbers: readonly number[]): number =>
  numbers.reduce((total, number) => total + number, 0);
