import { assert } from '@cloudless/base';
import type { RolloutObserved, RolloutReplica, RolloutStep } from '../index.js';

/** The invariants of a rollout, written independently of the planner. */

type ReplicaPredicate = (replica: RolloutReplica) => boolean;

/** A group of wanted replicas, and its maximum size. */
interface Group {
  readonly is: ReplicaPredicate;
  readonly most: number;
}

const countWhere = (observed: RolloutObserved, is: ReplicaPredicate): number =>
  observed.replicas.reduce((sum, one) => sum + (is(one) ? 1 : 0), 0);
const isLive: ReplicaPredicate = ({ lost }) => !lost;
const isStaying: ReplicaPredicate = ({ lost, desired }) => !lost && desired === 'running';

/**
 * Tells which replicas have to leave their nodes, also because the node is no target or has a
 * better replica.
 */
export function isMoving(observed: RolloutObserved): ReplicaPredicate {
  const { globalTargets, want, paused, version } = observed;
  const hasToGo: ReplicaPredicate = ({ draining, forced }) => draining || forced === true;
  if (globalTargets === undefined) return hasToGo;
  const isOnTarget: ReplicaPredicate = ({ nodeId }) =>
    want > 0 && nodeId !== undefined && globalTargets.includes(nodeId);
  const staysOnTarget: ReplicaPredicate = (replica) =>
    isStaying(replica) && isOnTarget(replica) && !hasToGo(replica);
  const hasBetter = (replica: RolloutReplica): boolean =>
    observed.replicas.some(
      (other) =>
        other.nodeId === replica.nodeId && staysOnTarget(other) && isBetter(other, replica),
    );
  const isDuplicate: ReplicaPredicate = (replica) =>
    staysOnTarget(replica) &&
    (paused === true || replica.version === version) &&
    hasBetter(replica);
  const isBetter = (one: RolloutReplica, other: RolloutReplica): boolean =>
    (paused === true || one.version === other.version) && getRank(one) > getRank(other);
  return (replica) => hasToGo(replica) || !isOnTarget(replica) || isDuplicate(replica);
}

/** Available before not yet available, before unready; among equals the oldest first. */
const getRank = ({ available, notYetAvailable, createdSequence }: RolloutReplica): number =>
  (available ? 2 : notYetAvailable === true ? 1 : 0) * 1_000_000 - createdSequence;

/** Tells which available replicas count for `minAvailable`. */
function isServing({ strategy, paused, version }: RolloutObserved): ReplicaPredicate {
  if (strategy?.kind === 'blueGreen')
    return (replica) => replica.version === strategy.activeVersion;
  return strategy?.kind === 'recreate' && paused !== true
    ? (replica) => replica.version === version
    : () => true;
}

/** The number of available replicas that count for `minAvailable`. */
export function countAvailable(observed: RolloutObserved): number {
  const serves = isServing(observed);
  return countWhere(
    observed,
    (replica) =>
      isStaying(replica) && replica.available && replica.forced !== true && serves(replica),
  );
}

/** The maximum of live replicas, unless more are live already. */
export function getMaxLive(observed: RolloutObserved): number {
  const { want, maxSurge, strategy } = observed;
  const moving = isMoving(observed);
  const beside =
    strategy?.kind === 'blueGreen' ? want : strategy?.kind === 'recreate' ? 0 : maxSurge;
  return want + beside + countWhere(observed, (replica) => isLive(replica) && moving(replica));
}

export function checkStep(
  before: RolloutObserved,
  step: RolloutStep,
  after: RolloutObserved,
): void {
  if (step.kind === 'stopReplica') checkStop(before, step.replicaId, after);
  if (step.kind === 'createReplica') checkCreate(before, step.version, step.nodeId);
}

function checkStop(before: RolloutObserved, replicaId: string, after: RolloutObserved): void {
  const replica = before.replicas.find(({ id }) => id === replicaId);
  assert(replica !== undefined && isStaying(replica), 'only a running replica is stopped');
  const mayServe =
    (replica.available || replica.notYetAvailable === true) &&
    replica.forced !== true &&
    isServing(before)(replica);
  const ready = countAvailable(after);
  assert(
    !mayServe || ready >= before.minAvailable,
    `${ready} available, minAvailable ${before.minAvailable}`,
  );
}

function checkCreate(before: RolloutObserved, version: number, nodeId: string | undefined): void {
  const { strategy, paused, globalTargets } = before;
  assert(
    (nodeId === undefined) === (globalTargets === undefined),
    'only a GLOBAL workload names nodes',
  );
  assert(
    nodeId === undefined || globalTargets?.includes(nodeId) === true,
    'only a target node gets a replica',
  );
  if (strategy?.kind !== 'recreate') return;
  const others = countWhere(
    before,
    (replica) => isLive(replica) && replica.version !== before.version,
  );
  if (paused !== true)
    assert(version === before.version && others === 0, 'RECREATE runs two versions');
  else
    assert(
      version === (others > 0 ? (before.baseVersion ?? before.version) : before.version),
      'the wrong version while paused',
    );
}

/**
 * Checks the result of some steps of one decision.
 * @param whole - Whether these are all of its steps.
 */
export function checkDecision(
  before: RolloutObserved,
  steps: readonly RolloutStep[],
  after: RolloutObserved,
  whole: boolean,
): void {
  const [first] = steps;
  if (first?.kind === 'switchVersion') return checkSwitch(before, steps);
  assert(
    steps.every(({ kind }) => kind !== 'switchVersion'),
    'a switch is the only step of its decision',
  );
  const live = countWhere(after, isLive);
  const most = Math.max(countWhere(before, isLive), getMaxLive(before));
  assert(live <= most, `${live} live, maximum ${most}`);
  checkGroups(before, after);
  if (whole && before.strategy?.kind === 'blueGreen') checkNewSet(before, steps);
}

function checkSwitch(before: RolloutObserved, steps: readonly RolloutStep[]): void {
  const { strategy, version, want, paused, minAvailable } = before;
  assert(steps.length === 1, 'a switch is the only step of its decision');
  assert(
    strategy?.kind === 'blueGreen' && strategy.maySwitch && paused !== true,
    'a switch without permission',
  );
  assert(strategy.activeVersion !== version, 'a switch to the active version');
  const moving = isMoving(before);
  const fresh = countWhere(
    before,
    (one) => isStaying(one) && one.available && one.version === version && !moving(one),
  );
  assert(fresh >= want && fresh >= minAvailable, `a switch to ${fresh} of ${want}`);
}

/** Checks that the new set is created all at once. */
function checkNewSet(before: RolloutObserved, steps: readonly RolloutStep[]): void {
  const { strategy, version, want } = before;
  if (strategy?.kind !== 'blueGreen' || strategy.activeVersion === version) return;
  const moving = isMoving(before);
  const had = countWhere(
    before,
    (one) => isStaying(one) && one.version === version && !moving(one),
  );
  const made = steps.filter(
    (step) => step.kind === 'createReplica' && step.version === version,
  ).length;
  assert(made === 0 || had + made === want, `${made} added to a new set of ${had}`);
}

/** Checks that wanted replicas stay, and that no more are created than are missing. */
function checkGroups(before: RolloutObserved, after: RolloutObserved): void {
  const moving = isMoving(before);
  const stays = (replica: RolloutReplica): boolean => isStaying(replica) && !moving(replica);
  const known = new Set(before.replicas.map(({ id }) => id));
  const made = after.replicas.filter(({ id }) => !known.has(id));
  const groups = toGroups(before);
  for (const { is, most } of groups) {
    const had = countWhere(before, (replica) => stays(replica) && is(replica));
    const kept = countWhere(
      after,
      (replica) => stays(replica) && is(replica) && known.has(replica.id),
    );
    assert(kept >= Math.min(most, had), `${had - kept} of ${had} wanted replicas were stopped`);
    assert(
      made.filter(is).length <= Math.max(0, most + getRoomWhilePaused(before) - had),
      'more is created than is missing',
    );
  }
  assert(
    made.every((replica) => groups.some(({ is }) => is(replica))),
    'an unwanted replica is created',
  );
}

/** While paused, an unready replica may have to be worked around. */
const getRoomWhilePaused = ({
  paused,
  strategy,
  globalTargets,
  maxSurge,
  want,
}: RolloutObserved): number =>
  paused === true && want > 0 && globalTargets === undefined && strategy?.kind === 'rollingUpdate'
    ? maxSurge
    : 0;

function toGroups(observed: RolloutObserved): readonly Group[] {
  const { want, version, baseVersion = version, globalTargets, paused, strategy } = observed;
  const isOf =
    (...versions: readonly number[]): ReplicaPredicate =>
    (replica) =>
      versions.includes(replica.version);
  if (strategy?.kind === 'blueGreen') {
    const { activeVersion, keepVersion } = strategy;
    const active = { is: isOf(activeVersion), most: want };
    if (paused === true) return [active, { is: (one) => !active.is(one), most: want }];
    const beside = activeVersion === version ? keepVersion : version;
    return beside === undefined || beside === activeVersion
      ? [active]
      : [active, { is: isOf(beside), most: want }];
  }
  const isWanted: ReplicaPredicate = paused === true ? () => true : isOf(version);
  if (globalTargets !== undefined)
    return (want === 0 ? [] : globalTargets).map((nodeId) => ({
      is: (one) => one.nodeId === nodeId && isWanted(one),
      most: 1,
    }));
  const updated = strategy?.kind === 'rollingUpdate' ? (strategy.updated ?? want) : want;
  if (paused === true || updated >= want || version === baseVersion)
    return [{ is: isWanted, most: want }];
  return [
    { is: isWanted, most: updated },
    { is: isOf(baseVersion), most: want - updated },
  ];
}
