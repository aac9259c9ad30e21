import { assert } from '@cloudless/base';
import type { RolloutObserved, RolloutReplica, RolloutStep } from '../index.js';

/** The invariants of a rollout, written independently of the planner. */

type ReplicaPredicate = (replica: RolloutReplica) => boolean;

/** A group of wanted replicas, and its maximum size. */
interface Group {
  readonly includes: ReplicaPredicate;
  readonly maxSize: number;
}

const countWhere = (observed: RolloutObserved, isCounted: ReplicaPredicate): number =>
  observed.replicas.reduce((sum, replica) => sum + (isCounted(replica) ? 1 : 0), 0);
const isLive: ReplicaPredicate = ({ lost }) => !lost;
const isStaying: ReplicaPredicate = ({ lost, desired }) => !lost && desired === 'running';

/**
 * Returns a predicate for the replicas that have to leave their nodes, also because the node is no
 * target or has a better replica.
 */
export function isMoving(observed: RolloutObserved): ReplicaPredicate {
  const { globalTargets, want, paused, version } = observed;
  const hasToLeave: ReplicaPredicate = ({ draining, forced }) => draining || forced === true;
  if (globalTargets === undefined) return hasToLeave;
  const isOnTarget: ReplicaPredicate = ({ nodeId }) =>
    want > 0 && nodeId !== undefined && globalTargets.includes(nodeId);
  const staysOnTarget: ReplicaPredicate = (replica) =>
    isStaying(replica) && isOnTarget(replica) && !hasToLeave(replica);
  const hasBetter = (replica: RolloutReplica): boolean =>
    observed.replicas.some(
      (other) =>
        other.nodeId === replica.nodeId && staysOnTarget(other) && isBetter(other, replica),
    );
  const isDuplicate: ReplicaPredicate = (replica) =>
    staysOnTarget(replica) &&
    (paused === true || replica.version === version) &&
    hasBetter(replica);
  const isBetter = (a: RolloutReplica, b: RolloutReplica): boolean =>
    (paused === true || a.version === b.version) && getRank(a) > getRank(b);
  return (replica) => hasToLeave(replica) || !isOnTarget(replica) || isDuplicate(replica);
}

/** Rank of a replica, best highest: available, not yet available, unready; then the oldest. */
const getRank = ({ available, notYetAvailable, createdSequence }: RolloutReplica): number =>
  (available ? 2 : notYetAvailable === true ? 1 : 0) * 1_000_000 - createdSequence;

/** Returns a predicate for the replicas that count for `minAvailable` when they are available. */
function isServing({ strategy, paused, version }: RolloutObserved): ReplicaPredicate {
  if (strategy?.kind === 'blueGreen')
    return (replica) => replica.version === strategy.activeVersion;
  return strategy?.kind === 'recreate' && paused !== true
    ? (replica) => replica.version === version
    : () => true;
}

/** Returns the number of available replicas that count for `minAvailable`. */
export function countAvailable(observed: RolloutObserved): number {
  const serves = isServing(observed);
  return countWhere(
    observed,
    (replica) =>
      isStaying(replica) && replica.available && replica.forced !== true && serves(replica),
  );
}

/** Returns the maximum of live replicas, unless more are live already. */
export function getMaxLive(observed: RolloutObserved): number {
  const { want, maxSurge, strategy } = observed;
  const moving = isMoving(observed);
  const surge =
    strategy?.kind === 'blueGreen' ? want : strategy?.kind === 'recreate' ? 0 : maxSurge;
  return want + surge + countWhere(observed, (replica) => isLive(replica) && moving(replica));
}

/**
 * Returns true when old replicas end before their replacements start: no surge is allowed, and
 * `minAvailable` permits a stop. Never true for blue/green, where a whole set starts beside the
 * other.
 */
export function permitsStopFirst({
  strategy,
  maxSurge,
  minAvailable,
  want,
}: RolloutObserved): boolean {
  if (strategy?.kind === 'blueGreen') return false;
  return (strategy?.kind === 'recreate' || maxSurge === 0) && minAvailable < want;
}

/** Checks one step, applied to `before`, with the result `after`. */
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
  const available = countAvailable(after);
  assert(
    !mayServe || available >= before.minAvailable,
    `${available} available, minAvailable ${before.minAvailable}`,
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
 * @param isWhole - True when these are all steps of the decision.
 */
export function checkDecision(
  before: RolloutObserved,
  steps: readonly RolloutStep[],
  after: RolloutObserved,
  isWhole: boolean,
): void {
  const [first] = steps;
  if (first?.kind === 'switchVersion') return checkSwitch(before, steps);
  assert(
    steps.every(({ kind }) => kind !== 'switchVersion'),
    'a switch is the only step of its decision',
  );
  const live = countWhere(after, isLive);
  const maxLive = Math.max(countWhere(before, isLive), getMaxLive(before));
  assert(live <= maxLive, `${live} live, maximum ${maxLive}`);
  if (permitsStopFirst(before)) checkStopFirst(before, after);
  checkGroups(before, after);
  if (isWhole && before.strategy?.kind === 'blueGreen') checkNewSet(before, steps);
}

/**
 * Checks that replicas are created only in the place of ended ones, stopping replicas not included:
 * never above the wanted count; in mode GLOBAL never on a node that has a live replica.
 */
function checkStopFirst(before: RolloutObserved, after: RolloutObserved): void {
  const existingIds = new Set(before.replicas.map(({ id }) => id));
  const created = after.replicas.filter(({ id }) => !existingIds.has(id));
  if (before.globalTargets === undefined) {
    const live = countWhere(before, isLive);
    assert(
      created.length === 0 || live + created.length <= before.want,
      `${created.length} created beside ${live} live of ${before.want}, although the stop is first`,
    );
    return;
  }
  for (const { nodeId } of created)
    assert(
      countWhere(before, (replica) => isLive(replica) && replica.nodeId === nodeId) === 0,
      `a second replica on ${nodeId ?? ''}, although the stop is first`,
    );
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
  const available = countWhere(
    before,
    (replica) =>
      isStaying(replica) && replica.available && replica.version === version && !moving(replica),
  );
  assert(available >= want && available >= minAvailable, `a switch to ${available} of ${want}`);
}

/** Checks that the new set is created all at once. */
function checkNewSet(before: RolloutObserved, steps: readonly RolloutStep[]): void {
  const { strategy, version, want } = before;
  if (strategy?.kind !== 'blueGreen' || strategy.activeVersion === version) return;
  const moving = isMoving(before);
  const existing = countWhere(
    before,
    (replica) => isStaying(replica) && replica.version === version && !moving(replica),
  );
  const created = steps.filter(
    (step) => step.kind === 'createReplica' && step.version === version,
  ).length;
  assert(
    created === 0 || existing + created === want,
    `${created} added to a new set of ${existing}`,
  );
}

/** Checks that wanted replicas stay, and that no more are created than are missing. */
function checkGroups(before: RolloutObserved, after: RolloutObserved): void {
  const moving = isMoving(before);
  const stays = (replica: RolloutReplica): boolean => isStaying(replica) && !moving(replica);
  const existingIds = new Set(before.replicas.map(({ id }) => id));
  const created = after.replicas.filter(({ id }) => !existingIds.has(id));
  const groups = toGroups(before);
  for (const { includes, maxSize } of groups) {
    const existing = countWhere(before, (replica) => stays(replica) && includes(replica));
    const kept = countWhere(
      after,
      (replica) => stays(replica) && includes(replica) && existingIds.has(replica.id),
    );
    assert(
      kept >= Math.min(maxSize, existing),
      `${existing - kept} of ${existing} wanted replicas were stopped`,
    );
    assert(
      created.filter(includes).length <=
        Math.max(0, maxSize + getExtraWhilePaused(before) - existing),
      'more is created than is missing',
    );
  }
  assert(
    created.every((replica) => groups.some(({ includes }) => includes(replica))),
    'an unwanted replica is created',
  );
}

/** Returns how many more replicas may exist while paused, beside new replicas that are unready. */
const getExtraWhilePaused = ({
  paused,
  strategy,
  globalTargets,
  maxSurge,
  want,
}: RolloutObserved): number =>
  paused === true && want > 0 && globalTargets === undefined && strategy?.kind === 'rollingUpdate'
    ? maxSurge
    : 0;

/** Returns the groups of wanted replicas: by version, or by node for a GLOBAL workload. */
function toGroups(observed: RolloutObserved): readonly Group[] {
  const { want, version, baseVersion = version, globalTargets, paused, strategy } = observed;
  const isOf =
    (...versions: readonly number[]): ReplicaPredicate =>
    (replica) =>
      versions.includes(replica.version);
  if (strategy?.kind === 'blueGreen') {
    const { activeVersion, keepVersion } = strategy;
    const active: Group = { includes: isOf(activeVersion), maxSize: want };
    if (paused === true)
      return [active, { includes: (replica) => !active.includes(replica), maxSize: want }];
    const beside = activeVersion === version ? keepVersion : version;
    return beside === undefined || beside === activeVersion
      ? [active]
      : [active, { includes: isOf(beside), maxSize: want }];
  }
  const isWanted: ReplicaPredicate = paused === true ? () => true : isOf(version);
  if (globalTargets !== undefined)
    return (want === 0 ? [] : globalTargets).map((nodeId) => ({
      includes: (replica) => replica.nodeId === nodeId && isWanted(replica),
      maxSize: 1,
    }));
  const updated = strategy?.kind === 'rollingUpdate' ? (strategy.updated ?? want) : want;
  if (paused === true || updated >= want || version === baseVersion)
    return [{ includes: isWanted, maxSize: want }];
  return [
    { includes: isWanted, maxSize: updated },
    { includes: isOf(baseVersion), maxSize: want - updated },
  ];
}
