import { clone, equals } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  RolloutStatus_Phase as RolloutPhase,
  WorkloadSpecSchema,
  type Rollout_Step,
  type WorkloadSpec,
} from '@cloudless/api';
import type {
  ControlRecord,
  ReplicaRecord,
  RolloutRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';
import { createdReplicas, findReplicaChanges } from './commit-changes.js';
import type { Checker, Commit } from './commit-checkers.js';
import {
  factsOf,
  isSettled,
  msOf,
  needsPreviousVersion,
  settingsOf,
  type RolloutFacts,
} from './rollout-facts.js';

/**
 * Invariant 13: new replicas have the wanted version, or the version that the rollout replaces
 * while that version may still be needed; never a version between the two.
 */
export const creationsHaveWantedVersion: Checker = ({ view, changes }) =>
  createdReplicas(changes).flatMap(({ id, uid, version }) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [];
    const facts = factsOf(view, workload);
    const { canonicalVersion, wanted, active, control } = facts;
    const rolledOutVersion = control?.rollout?.version;
    return [
      ...(rolledOutVersion === undefined || rolledOutVersion === workload.version
        ? []
        : [
            `13: ${id} was created by the rollout of version ${rolledOutVersion}, but version ${workload.version} is wanted`,
          ]),
      ...(canonicalVersion(version) === wanted ||
      (canonicalVersion(version) === active && needsPreviousVersion(facts))
        ? []
        : [
            `13: ${id} was created with version ${version}, but version ${workload.version} is wanted`,
          ]),
    ];
  });

/**
 * A creation leaves no more replicas of the new version than the current canary step allows. A
 * rollback has no steps, whichever version is active.
 */
export const canaryStepsAreKept: Checker = ({ view, changes, nodeFacts }) =>
  [...new Set(createdReplicas(changes).map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [];
    const {
      strategy,
      isFirst,
      isInProgress,
      control,
      limits,
      live,
      canonicalVersion,
      wanted,
      active,
    } = factsOf(view, workload);
    const { steps = [] } = settingsOf(workload) ?? {};
    const done = control?.rollout?.stepsDone ?? 0;
    if (
      strategy !== Strategy.ROLLING_UPDATE ||
      isFirst ||
      !isInProgress ||
      (control?.rollout?.rollsBack ?? 0) !== 0 ||
      done >= steps.length ||
      active === wanted
    )
      return [];
    const max = Math.max(...steps.slice(0, done + 1).map((step) => stepSizeOf(step, limits.want)));
    const isNew = (replica: ReplicaRecord): boolean => canonicalVersion(replica.version) === wanted;
    if (!createdReplicas(changes).some(isNew)) return [];
    const updated = live.filter(
      (replica) =>
        replica.desiredRunning && isNew(replica) && !nodeFacts.draining.has(replica.nodeId),
    );
    return updated.length > max
      ? [
          `${workload.name} has ${updated.length} replicas of version ${workload.version}, but its step allows ${max}`,
        ]
      : [];
  });

/**
 * A rollout passes a canary step, switches the version or ends only when the conditions of that
 * change hold, and never returns to an older version.
 */
export const rolloutsOnlyGoForward: Checker = (commit) =>
  commit.changes.flatMap(({ kind, id, before, after }) => {
    const workload = commit.view.workload(id)?.value;
    if (kind !== 'control' || workload === undefined || workload.deletionRequestedAt !== undefined)
      return [];
    const [former, current] = [
      before as ControlRecord | undefined,
      after as ControlRecord | undefined,
    ];
    if (former?.rollout === undefined || current?.rollout === undefined) return [];
    const facts = factsOf(commit.view, workload);
    return [
      ...checkNotRevived(former.rollout, current.rollout),
      ...checkSteps(former, current, commit, workload),
      ...checkSwitch(former, current, commit, facts),
      ...checkEnd(former, current, facts),
    ].map((text) => `${text}: ${workload.name}`);
  });

/** Invariant 13: a superseded rollout does not continue. */
function checkNotRevived(former: RolloutRecord, current: RolloutRecord): readonly string[] {
  return current.version < former.version
    ? [`13: the rollout of version ${former.version} became one of version ${current.version}`]
    : [];
}

/** Checks promotions and waits of canary steps, and that no passed step is forgotten. */
function checkSteps(
  former: ControlRecord,
  current: ControlRecord,
  { nodeFacts }: Commit,
  workload: WorkloadRecord,
): readonly string[] {
  const [from, to] = [former.rollout as RolloutRecord, current.rollout as RolloutRecord];
  if (from.version !== to.version || former.observedGeneration !== current.observedGeneration)
    return [];
  if (current.observedGeneration !== workload.generation) return [];
  if (to.stepsDone < from.stepsDone)
    return [`canary step ${from.stepsDone} was done, but now only ${to.stepsDone} are`];
  const passed = settingsOf(workload)?.steps.slice(from.stepsDone, to.stepsDone) ?? [];
  const manual = passed.filter(({ promotion }) => promotion === Promotion.MANUAL).length;
  const waitMs = msOf(passed[0]?.wait);
  const reachedMs = from.stepReachedAt === undefined ? undefined : timestampMs(from.stepReachedAt);
  const { wallMs = Number.POSITIVE_INFINITY } = nodeFacts;
  return [
    ...(manual > (from.promoted ? 1 : 0)
      ? [`${manual} canary steps were passed without a promotion for each`]
      : []),
    ...(manual > 0 && to.promoted ? ['a promotion was used but not removed'] : []),
    ...(waitMs > 0 && (reachedMs === undefined || wallMs < reachedMs + waitMs)
      ? ['a canary step was passed before its wait ended']
      : []),
  ];
}

/** A version becomes active only when all its replicas exist and are ready. */
function checkSwitch(
  former: ControlRecord,
  current: ControlRecord,
  commit: Commit,
  facts: RolloutFacts,
): readonly string[] {
  const { canonicalVersion, limits, workload } = facts;
  if (
    current.activeVersion === 0 ||
    canonicalVersion(former.activeVersion) === canonicalVersion(current.activeVersion)
  )
    return [];
  const ready = countReady(facts, canonicalVersion(current.activeVersion), commit);
  const { rollout } = current;
  const needsPromotion =
    rollout?.strategy === Strategy.BLUE_GREEN &&
    rollout.version === former.rollout?.version &&
    rollout.fromVersion !== 0 &&
    rollout.rollsBack === 0 &&
    current.observedGeneration === workload.generation &&
    settingsOf(workload)?.promotion === Promotion.MANUAL;
  return [
    ...(ready < limits.want
      ? [`version ${current.activeVersion} became active with ${ready} of ${limits.want} ready`]
      : []),
    ...(needsPromotion && former.rollout?.promoted !== true
      ? [`version ${current.activeVersion} became active without a promotion`]
      : []),
  ];
}

/** Invariant 11: a rollout ends with all replicas in place, or with a reason. */
function checkEnd(
  former: ControlRecord,
  current: ControlRecord,
  { canonicalVersion, live }: RolloutFacts,
): readonly string[] {
  const [before, phase] = [former.rolloutPhase, current.rolloutPhase];
  // A rollout that was resumed or retried is about to continue.
  const continues =
    current.rollout?.retry === true || (former.pausedVersion !== 0 && current.pausedVersion === 0);
  const isHeld = !continues && (phase === RolloutPhase.PAUSED || phase === RolloutPhase.FAILED);
  const version = canonicalVersion(current.rollout?.version ?? 0);
  const others =
    isSettled(phase) && !isSettled(before)
      ? live.filter((replica) => canonicalVersion(replica.version) !== version)
      : [];
  return [
    ...(isHeld && current.rolloutReason === ''
      ? ['11: the rollout is paused or failed without a reason']
      : []),
    ...(isHeld && phase === RolloutPhase.FAILED && (current.rollout?.failure?.reason ?? '') === ''
      ? ['11: the rollout has failed without naming the failure']
      : []),
    ...(others.length > 0
      ? [`11: the rollout ended with ${others.length} replicas of other versions`]
      : []),
  ];
}

function countReady(
  { live, canonicalVersion }: RolloutFacts,
  version: number,
  { nodeFacts }: Commit,
): number {
  return live.filter(
    (replica) =>
      replica.ready &&
      replica.desiredRunning &&
      canonicalVersion(replica.version) === version &&
      nodeFacts.alive.has(replica.nodeId),
  ).length;
}

/** BLUE_GREEN: after a switch, the replicas of the previous version stay for pause_duration. */
export const previousVersionIsKept: Checker = ({ view, changes, nodeFacts }) =>
  findReplicaChanges(changes).flatMap(({ before, after }) => {
    const isVoluntary =
      before?.desiredRunning === true &&
      before.ready &&
      after !== undefined &&
      !after.desiredRunning &&
      !after.lost;
    const workload = isVoluntary ? view.workload(before.uid)?.value : undefined;
    if (workload === undefined || before === undefined || nodeFacts.wallMs === undefined) return [];
    const { strategy, control, canonicalVersion, limits, live } = factsOf(view, workload);
    const { switchedAt, fromVersion = 0, version } = control?.rollout ?? {};
    const isFormer =
      fromVersion !== 0 && canonicalVersion(before.version) === canonicalVersion(fromVersion);
    if (
      strategy !== Strategy.BLUE_GREEN ||
      switchedAt === undefined ||
      version !== workload.version ||
      !isFormer
    )
      return [];
    const kept = live.filter(
      (replica) =>
        replica.desiredRunning &&
        canonicalVersion(replica.version) === canonicalVersion(fromVersion),
    ).length;
    const leftMs =
      timestampMs(switchedAt) + msOf(settingsOf(workload)?.pauseDuration) - nodeFacts.wallMs;
    const isMoved = nodeFacts.draining.has(before.nodeId);
    return leftMs > 0 && kept < limits.want && !isMoved
      ? [`${before.id} of ${workload.name} was stopped ${leftMs} ms before pause_duration ended`]
      : [];
  });

/**
 * Invariant 11: an undo or a rollback restores the earlier template unchanged, and a rollback
 * happens only where the spec requests one.
 */
export const undoRestoresTemplate: Checker = ({ view, changes }) =>
  changes.flatMap(({ kind, id, before, after }) => {
    const version =
      kind === 'version' && before === undefined ? (after as VersionRecord | undefined) : undefined;
    const [, operation = '', number = ''] =
      /^(undo|rollback) to version (\d+)$/.exec(version?.cause ?? '') ?? [];
    if (version === undefined || operation === '') return [];
    const uid = id.split('/')[0] ?? '';
    const workload = view.workload(uid)?.value;
    const earlier = view.version(uid, Number(number));
    if (
      workload?.version !== version.version ||
      workload.spec === undefined ||
      earlier?.asWritten === undefined
    )
      return [];
    const isSame = equals(WorkloadSpecSchema, templatePartOf(workload.spec), earlier.asWritten);
    const settings = workloadBefore(changes, uid)?.spec?.rollout;
    return [
      ...(isSame
        ? []
        : [
            `11: ${operation} of ${workload.name} to version ${number} did not restore the recorded template`,
          ]),
      ...(operation === 'rollback' && settings?.onFailure !== OnFailure.ROLLBACK
        ? [`11: ${workload.name} was rolled back, but on_failure is not ROLLBACK`]
        : []),
    ];
  });

/** All checkers of rollouts. */
export const ROLLOUT_CHECKERS: readonly Checker[] = [
  creationsHaveWantedVersion,
  canaryStepsAreKept,
  rolloutsOnlyGoForward,
  previousVersionIsKept,
  undoRestoresTemplate,
];

/** Returns the number of new replicas that a canary step allows for the wanted count. */
function stepSizeOf(step: Rollout_Step, want: number): number {
  const { replicas, percent, weightPercent = 0 } = step;
  const share = Math.ceil(((percent || weightPercent) * want) / 100);
  return Math.min(want, replicas > 0 ? replicas : Math.max(1, share));
}

/** Returns the record of a workload before the changes; undefined when they do not change it. */
function workloadBefore(changes: readonly RecordChange[], uid: string): WorkloadRecord | undefined {
  return changes.find(({ kind, id }) => kind === 'workload' && id === uid)?.before as
    WorkloadRecord | undefined;
}

/** Returns a spec without the fields that are not part of the replica template. */
function templatePartOf(spec: WorkloadSpec): WorkloadSpec {
  const part = clone(WorkloadSpecSchema, spec);
  delete part.replicas;
  delete part.rollout;
  delete part.disconnect;
  part.expose = [];
  return part;
}
