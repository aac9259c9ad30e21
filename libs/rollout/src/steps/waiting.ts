import { assert } from '@cloudless/base';
import type { RolloutDecision, WaitReason, WakeOn } from './decision.js';
import { describeImpossibleLimits, stopsFirst, type RolloutLimits } from './limits.js';
import type { RolloutObserved } from './observed.js';
import type { ReplicaTally } from './replica-tally.js';

/** Returns a wait. `text` is for users. */
export function waitFor(
  kind: WaitReason['kind'],
  wakeOn: WakeOn['kind'],
  text: string,
): RolloutDecision {
  return { kind: 'waiting', reason: { kind, text }, wakeOn: { kind: wakeOn } };
}

/**
 * Explains why a set of replicas waits. Of several causes, the one that lasts longest is named:
 * stops, which end by themselves, last.
 * @returns Undefined when the set is in its wanted state.
 */
export function explainSetWait(
  limits: RolloutLimits & Pick<RolloutObserved, 'pinnedNodes' | 'globalTargets'>,
  tally: ReplicaTally,
): RolloutDecision | undefined {
  const { want, minAvailable, pinnedNodes = [] } = limits;
  const { available, unready, notYetAvailable, leaving } = tally;
  if (unready > 0)
    return waitFor(
      'notReady',
      'replicas',
      `${available} of ${want} replicas are ready, ${describeUnready(want, tally)}` +
        (explainStopFirst(limits, tally) || explainMissingRoom(limits, tally)),
    );
  if (notYetAvailable > 0) return waitFor('notYetAvailable', 'replicas', explainSettling(tally));
  if (leaving > 0)
    return waitFor('stopping', 'replicas', `${formatReplicaCount(leaving)} still stopping`);
  if (tally.availableVictims.length === 0 && tally.missing.length === 0) return undefined;
  if (minAvailable > want)
    return waitFor(
      'notReady',
      'replicas',
      `min_available allows no stop: not all replicas on ${pinnedNodes.join(', ')} are available, and they cannot be replaced, as these nodes accept no new replicas. Uncordon the nodes, or lower min_available`,
    );
  // No replica is stopping, all are available, and no step is possible: only impossible limits lead
  // here.
  const text = describeImpossibleLimits(limits);
  assert(text !== undefined, 'limits that allow a step always lead to one');
  return waitFor('impossibleLimits', 'spec', text);
}

/** Describes unready replicas, of which some may be extra, so that the counts add up. */
function describeUnready(want: number, { available, unready }: ReplicaTally): string {
  const extra = Math.min(unready, available + unready - want);
  if (extra <= 0) return `${unready} not yet`;
  return extra === unready ? `${unready} extra not yet` : `${unready} not yet (${extra} extra)`;
}

/**
 * Explains why ready replicas are not available yet. `settling` is the normal end of a healthy
 * rollout: all replicas are ready, some for less than min_ready_duration.
 */
export function explainSettling({ onSilentNodes }: Pick<ReplicaTally, 'onSilentNodes'>): string {
  if (onSilentNodes === 0) return 'settling';
  return onSilentNodes === 1
    ? 'the node of 1 ready replica does not answer at the moment'
    : `the nodes of ${onSilentNodes} ready replicas do not answer at the moment`;
}

/**
 * Returns the advice for the user when no node fits a new replica and `minAvailable` prevents the
 * stop of another replica before it; empty while a stop may free resources.
 */
function explainMissingRoom(
  { minAvailable, writtenMinAvailable }: RolloutLimits,
  { unplaced, available, leaving, availableVictims }: ReplicaTally,
): string {
  if (
    unplaced === undefined ||
    leaving > 0 ||
    availableVictims.length === 0 ||
    available > minAvailable
  )
    return '';
  const limit =
    writtenMinAvailable === undefined
      ? `${minAvailable}`
      : `${writtenMinAvailable}, which counts as ${minAvailable},`;
  return (
    `: ${unplaced}; min_available ${limit} allows no stop before the new replica is ready: ` +
    'free resources, or lower min_available, or raise max_unavailable'
  );
}

/**
 * Returns why an unready replica has no node, which replicas wait to leave their nodes until enough
 * replicas are ready, and the advice for the user; empty when their replacements need not wait for
 * their ends.
 */
function explainStopFirst(
  limits: RolloutLimits & Pick<RolloutObserved, 'globalTargets'>,
  { leaving, drainingAvailable, available, unplaced }: ReplicaTally,
): string {
  const { want, minAvailable, batch, globalTargets } = limits;
  if (!stopsFirst(limits) || globalTargets !== undefined || leaving > 0 || drainingAvailable === 0)
    return '';
  const needed = Math.max(minAvailable, want - batch) + 1;
  const isOne = drainingAvailable === 1;
  const subject = isOne
    ? 'that has to leave its node stops'
    : 'that have to leave their nodes stop';
  const replacement = isOne ? 'its replacement starts' : 'their replacements start';
  return (
    `${unplaced === undefined ? '' : `: ${unplaced}`}; ` +
    `${formatReplicaCount(drainingAvailable)} ${subject} before ${replacement}, and ` +
    `${isOne ? 'waits' : 'wait'} until ${needed} are ready: ` +
    `to go on before that, ${adviseFewerReady(limits, available)}`
  );
}

/** Returns which of the limits to change so that a replica may stop with `available` replicas. */
function adviseFewerReady({ want, minAvailable, batch }: RolloutLimits, available: number): string {
  if (want - batch < available) return 'lower min_available';
  if (minAvailable < available) return 'raise max_unavailable';
  // The default of min_available is this number, and follows max_unavailable.
  return minAvailable === want - batch
    ? 'raise max_unavailable, and lower min_available if it is set'
    : 'lower min_available and raise max_unavailable';
}

/** Returns the wait of a paused rollout with `others` replicas of other versions. */
export const waitPaused = (others: number): RolloutDecision =>
  waitFor('paused', 'spec', `paused with ${formatReplicaCount(others)} of other versions`);

/** Returns a count of replicas for users: `1 replica`, `2 replicas`. */
export const formatReplicaCount = (count: number): string =>
  count === 1 ? '1 replica' : `${count} replicas`;
