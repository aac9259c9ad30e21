import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  WorkloadSpecSchema,
  type Event,
} from '@cloudless/api';
import {
  VersionRecordSchema,
  type ReplicaRecord,
  type RolloutRecord,
  type VersionRecord,
} from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';
import {
  toCanonicalVersion,
  describeNewPins,
  putSpecUpdate,
  restoreSpecOfVersion,
  toVersionKeyId,
  type EventInit,
  type Stored,
} from '@cloudless/cluster-state';
import {
  advanceRollout,
  type GateObservation,
  type RolloutAdvance,
  type RolloutEvent,
  type RolloutObserved,
} from '@cloudless/rollout';
import { findChangeEvent } from '../common/causes.js';
import { countFailures, toRolloutFailure, type FailureSources } from './rollout-failure.js';
import { writeRolloutState, toRolloutState, toRolloutSettings } from './rollout-state.js';
import { MAX_PASS_WRITES, type RolloutPass } from './rollout-pass.js';

/** Number of newest versions that are kept, so that `UndoRollout` can return to them. */
const MAX_VERSIONS = 10;

/**
 * Advances the rollout of a pass by one decision, and adds its new state and its events to the
 * pass. The caller applies the steps.
 * @param nowMs - Wall-clock milliseconds.
 * @param gate - The gate of the current canary step. Default: it has no result.
 */
export function advancePass(
  pass: RolloutPass,
  observed: RolloutObserved,
  nowMs: number,
  gate?: GateObservation,
): RolloutAdvance {
  const { nextControl, workload, view } = pass;
  const { uid, version, generation, spec } = workload.value;
  const state = toRolloutState(nextControl);
  const isNewRollout = state.version !== version;
  const sources = { view, rollout: nextControl.rollout };
  const endedAt = nextControl.rollout?.endedAt;
  const failures = isNewRollout
    ? 0
    : (nextControl.rollout?.failedGone ?? 0) + sumFailures(sources, pass.replicas);
  const advance = advanceRollout(state, {
    settings: toRolloutSettings(spec ?? create(WorkloadSpecSchema)),
    version,
    toCanonical: (number) => toCanonicalVersion(view, uid, number),
    observed,
    pausedByUser: nextControl.pausedVersion === version,
    failures,
    changed: nextControl.observedGeneration !== generation,
    nowMs,
    ...definedFields({ gate }),
  });
  writeRolloutState(nextControl, advance.state);
  nextControl.observedGeneration = generation;
  if (nextControl.rollout !== undefined) {
    nextControl.rollout.failedNew = failures;
    updateEnd(nextControl.rollout, isNewRollout ? undefined : endedAt, advance.state, nowMs);
    if (isNewRollout)
      Object.assign(nextControl.rollout, {
        firstSequence: nextControl.nextSequence,
        failedGone: 0,
      });
  }
  updateFailure(pass, advance, isNewRollout, nowMs);
  for (const event of advance.events) addRolloutEvent(pass, event);
  if (nextControl.activeVersion !== state.activeVersion) markVersionRolledOut(pass);
  if (advance.rollBackTo !== undefined) rollBack(pass, advance.rollBackTo, nowMs);
  return advance;
}

/**
 * Sets the end of a rollout in its first pass in a final phase. Removes the end when the rollout goes
 * on, for example after a ResumeRollout.
 * @param endedAt - The end that the record had; undefined without one, and for a new rollout.
 */
function updateEnd(
  rollout: RolloutRecord,
  endedAt: Timestamp | undefined,
  { phase }: RolloutAdvance['state'],
  nowMs: number,
): void {
  if (FINAL_PHASES.has(phase)) rollout.endedAt = endedAt ?? timestampFromMs(nowMs);
  else delete rollout.endedAt;
}

const FINAL_PHASES: ReadonlySet<RolloutAdvance['state']['phase']> = new Set([
  'completed',
  'failed',
  'rolledBack',
]);

/**
 * Updates the failure in the control record. The failure is kept until its rollout completes after
 * all or another rollout begins; the rollback that the failure caused keeps it.
 */
function updateFailure(
  { nextControl, replicas, view }: RolloutPass,
  { state, events }: RolloutAdvance,
  isNewRollout: boolean,
  nowMs: number,
): void {
  if (nextControl.rollout === undefined) return;
  // A rollback may begin and end in one pass; then only the phase shows that it was a rollback.
  const isObsolete = isNewRollout
    ? state.rollsBackFrom === 0 && state.phase !== 'rolledBack'
    : state.phase === 'completed';
  if (isObsolete) delete nextControl.rollout.failure;
  if (!events.some(({ kind }) => kind === 'failed')) return;
  const values = replicas.map(({ value }) => value);
  const failure = toRolloutFailure({ view, rollout: nextControl.rollout }, values, {
    reason: state.reason,
    version: state.version,
    nowMs,
  });
  nextControl.rollout.failure = failure;
  nextControl.rolloutReason = failure.reason;
}

/** Marks the new active version as rolled out, so that `UndoRollout` may return to it. */
function markVersionRolledOut({ nextControl, versions, workload, transaction }: RolloutPass): void {
  const activeVersion = versions.find(({ version }) => version === nextControl.activeVersion);
  if (activeVersion === undefined || activeVersion.rolledOut) return;
  const record = Object.assign(clone(VersionRecordSchema, activeVersion), { rolledOut: true });
  transaction.put('version', toVersionKeyId(workload.value.uid, activeVersion.version), record);
}

/** Writes the template of an earlier version as the newest version. */
function rollBack(pass: RolloutPass, version: number, nowMs: number): void {
  const { transaction, workload, nextControl } = pass;
  const target = pass.versions.find((record) => record.version === version);
  const spec = workload.value.spec;
  if (target === undefined || spec === undefined) return; // the rollout stays failed
  const cause = `rollback to version ${version}`;
  const restored = restoreSpecOfVersion(pass.view, workload.value, target);
  const pins = describeNewPins(target.asWritten, restored);
  const record = putSpecUpdate(transaction, pass.view, workload, {
    spec: restored,
    requestId: '',
    nowMs,
    cause,
  });
  transaction.event({
    ...describeSubject(pass),
    severity: Severity.WARNING,
    reason: 'WorkloadRolledBack',
    message: `version ${record.version} is the template of version ${version} again, as version ${workload.value.version} failed: ${nextControl.rolloutReason}${pins === '' ? '' : `; ${pins}`}`,
  });
}

const eventTypes: Readonly<
  Record<RolloutEvent['kind'], { readonly reason: string; readonly severity: Severity }>
> = {
  started: { reason: 'RolloutStarted', severity: Severity.INFO },
  completed: { reason: 'RolloutCompleted', severity: Severity.INFO },
  failed: { reason: 'RolloutFailed', severity: Severity.ERROR },
  rolledBack: { reason: 'RolloutRolledBack', severity: Severity.WARNING },
  paused: { reason: 'RolloutPaused', severity: Severity.INFO },
  resumed: { reason: 'RolloutResumed', severity: Severity.INFO },
  canaryStepReached: { reason: 'RolloutStepReached', severity: Severity.INFO },
  awaitsPromotion: { reason: 'RolloutAwaitsPromotion', severity: Severity.INFO },
  switched: { reason: 'TrafficSwitched', severity: Severity.INFO },
};

function addRolloutEvent(pass: RolloutPass, { kind, message }: RolloutEvent): void {
  const { nextControl, transaction } = pass;
  const version = nextControl.rollout?.version ?? 0;
  transaction.event({
    ...describeSubject(pass),
    ...eventTypes[kind],
    message:
      kind === 'failed' ? `version ${version} failed: ${nextControl.rolloutReason}` : message,
    ...(kind === 'failed' ? { replicaId: nextControl.rollout?.failure?.replicaId ?? '' } : {}),
    causedBy: findCause(pass, kind),
  });
}

function findCause({ view, workload }: RolloutPass, kind: RolloutEvent['kind']): Event | undefined {
  const { namespace, name } = workload.value;
  const findLast = (...reasons: string[]) =>
    view.lastEvent({ kind: 'workload', namespace, name }, reasons);
  if (kind === 'started') return findChangeEvent(view, workload.value);
  if (kind === 'resumed') return findLast('RolloutResumeRequested');
  if (kind === 'paused') return findLast('RolloutPauseRequested');
  return findLast('RolloutStarted');
}

function describeSubject({
  workload,
}: RolloutPass): Pick<EventInit, 'category' | 'namespace' | 'workload'> {
  const { namespace, name } = workload.value;
  return { category: Category.ROLLOUT, namespace, workload: name };
}

/**
 * Deletes old versions. Keeps the newest {@link MAX_VERSIONS}, the active version, the version that
 * the rollout replaces, and the versions of existing replicas.
 * @param versions - In ascending order.
 */
export function pruneVersions(
  { workload, replicas, transaction, nextControl }: RolloutPass,
  versions: readonly VersionRecord[],
): void {
  if (versions.length <= MAX_VERSIONS) return;
  const inUse = new Set(replicas.map(({ value }) => value.version));
  for (const number of [nextControl.activeVersion, nextControl.rollout?.fromVersion ?? 0])
    inUse.add(number);
  for (const { version } of versions.slice(0, versions.length - MAX_VERSIONS)) {
    if (transaction.size >= MAX_PASS_WRITES) return;
    if (!inUse.has(version))
      transaction.delete('version', toVersionKeyId(workload.value.uid, version));
  }
}

function sumFailures(sources: FailureSources, replicas: readonly Stored<ReplicaRecord>[]): number {
  let sum = 0;
  for (const { value } of replicas) sum += countFailures(sources, value);
  return sum;
}
