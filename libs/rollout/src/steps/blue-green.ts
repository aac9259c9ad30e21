import { assert } from '@cloudless/base';
import type { RolloutDecision } from './decision.js';
import type { RolloutObserved, RolloutReplica, RolloutStrategy } from './observed.js';
import { chooseVersion } from './rolling-update.js';
import {
  decideActions,
  sortByDisruptionOrder,
  countWhere,
  findExcess,
  isStaying,
  tallyReplicas,
  toSteps,
  type MissingReplica,
  type ReplicaTally,
} from './replica-tally.js';
import {
  waitPaused,
  formatReplicaCount,
  waitFor,
  explainSetWait,
  explainSettling,
} from './waiting.js';

type BlueGreen = Extract<RolloutStrategy, { readonly kind: 'blueGreen' }>;

/**
 * Decides the next steps of a blue/green rollout: keeps the active set complete within
 * `minAvailable`, creates the whole new set in one decision, and switches when the new set is
 * complete and available. `minAvailable` does not protect replicas that are not active, as they
 * serve no traffic.
 */
export function decideBlueGreen(observed: RolloutObserved, strategy: BlueGreen): RolloutDecision {
  const sets = assessSets(observed, strategy);
  if (sets.complete && strategy.maySwitch)
    return { kind: 'steps', steps: [{ kind: 'switchVersion', version: observed.version }] };
  const { want } = observed;
  const { live, extraLive } = sets;
  // The maximum of live replicas covers both sets.
  const activeActions = decideActions(
    { ...observed, maxSurge: want },
    { ...sets.active, live, extraLive },
  );
  const room = 2 * want + extraLive - live - activeActions.creates.length;
  const creates = sets.missing.length <= room ? sets.missing : [];
  const steps = toSteps({
    creates: [...activeActions.creates, ...creates],
    stops: [...activeActions.stops, ...sets.removable],
  });
  if (steps.length > 0) return { kind: 'steps', steps };
  return explainWait(observed, sets) ?? { kind: 'converged' };
}

/** The replicas of a blue/green rollout, counted by set. */
interface SetStatus {
  readonly live: number;
  /** Number of live draining replicas: each allows one more live replica. */
  readonly extraLive: number;
  /** Unconfirmed stops of any version. */
  readonly leaving: number;
  readonly active: ReplicaTally;
  /** The new set; undefined when the active version is the wanted version, or while paused. */
  readonly newSet: ReplicaTally | undefined;
  /** Replicas that the new set lacks. */
  readonly missing: readonly MissingReplica[];
  /** True when the new set is complete and available. */
  readonly complete: boolean;
  /** Replicas of neither set, which may stop at once. */
  readonly removable: readonly RolloutReplica[];
  /** Number of replicas that stay beside the active set: of the new or the kept previous set. */
  readonly besideActive: number;
}

function assessSets(observed: RolloutObserved, strategy: BlueGreen): SetStatus {
  const { want, version } = observed;
  const { activeVersion } = strategy;
  const isActive = (replica: RolloutReplica): boolean => replica.version === activeVersion;
  const active = tallyReplicas(
    observed.replicas.filter(isActive),
    chooseVersion(activeVersion, want),
  );
  const others = observed.replicas.filter((replica) => isStaying(replica) && !isActive(replica));
  const mayStay = (replica: RolloutReplica): boolean =>
    !replica.draining && mayStayBeside(replica, observed, strategy);
  const remaining = others.filter(mayStay);
  const removable = sortByDisruptionOrder([
    ...others.filter((replica) => !mayStay(replica)),
    ...findExcess(remaining, want),
  ]);
  const needsNewSet = observed.paused !== true && activeVersion !== version;
  const newSet = needsNewSet ? tallyReplicas(remaining, chooseVersion(version, want)) : undefined;
  const live = countWhere(observed.replicas, (replica) => !replica.lost);
  return {
    live,
    extraLive: countWhere(observed.replicas, (replica) => !replica.lost && replica.draining),
    leaving: countWhere(
      observed.replicas,
      (replica) => !replica.lost && replica.desired === 'stopped',
    ),
    active,
    newSet,
    missing: newSet?.missing ?? [],
    complete: newSet !== undefined && newSet.available >= want && (want > 0 || live === 0),
    removable,
    besideActive: others.length - removable.length,
  };
}

/**
 * Returns true when a replica that is not active may stay: a replica of the new set; without a new
 * set, a replica of the previous version while `keepVersion` names it; while paused, every replica.
 */
function mayStayBeside(
  { version }: RolloutReplica,
  observed: RolloutObserved,
  { activeVersion, keepVersion }: BlueGreen,
): boolean {
  if (observed.paused === true) return true;
  return activeVersion === observed.version
    ? version === keepVersion
    : version === observed.version;
}

function explainWait(observed: RolloutObserved, sets: SetStatus): RolloutDecision | undefined {
  const { want, version, paused } = observed;
  const { active, newSet, besideActive, leaving } = sets;
  if (sets.complete)
    return waitFor(
      'promotion',
      'permission',
      `version ${version} is complete and ready, and waits for a promotion`,
    );
  const unfinished = newSet === undefined ? undefined : explainUnfinishedSet(observed, newSet);
  const wait =
    unfinished ?? explainSetWait({ ...observed, maxSurge: want }, { ...active, leaving });
  if (wait !== undefined) return wait;
  assert(newSet === undefined, 'only stopping replicas occupy the room of a new set');
  const others = countWhere(
    observed.replicas,
    (replica) => isStaying(replica) && replica.version !== version,
  );
  if (paused === true) return others > 0 ? waitPaused(others) : undefined;
  return besideActive > 0
    ? waitFor(
        'kept',
        'permission',
        `${formatReplicaCount(besideActive)} of the previous version are kept`,
      )
    : undefined;
}

/** Explains why the new set is not available; undefined when it waits for stops to make room. */
function explainUnfinishedSet(
  { want, version }: RolloutObserved,
  newSet: ReplicaTally,
): RolloutDecision | undefined {
  const ready = `${newSet.available} of ${want} replicas of version ${version}`;
  if (newSet.unready > 0)
    return waitFor('notReady', 'replicas', `${ready} are ready, ${newSet.unready} not yet`);
  if (newSet.notYetAvailable === 0) return undefined;
  return waitFor('notYetAvailable', 'replicas', explainSettling(newSet));
}
