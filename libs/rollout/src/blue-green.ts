import { assert } from '@cloudless/base';
import type { RolloutDecision } from './decision.js';
import type { RolloutObserved, RolloutReplica, RolloutStrategy } from './observed.js';
import { chooseVersion } from './rolling-update.js';
import {
  actsOf,
  byDisruptionOrder,
  countOf,
  excessOf,
  isStaying,
  tallyOf,
  toSteps,
  type Missing,
  type Tally,
} from './tally.js';
import { pausedWith, replicas, waitFor, whySetWaits } from './waiting.js';

type BlueGreen = Extract<RolloutStrategy, { readonly kind: 'blueGreen' }>;

/**
 * Decides the next steps of a blue/green rollout: keeps the active set complete within
 * `minAvailable`, creates the new set beside it all at once, and switches when the new set is
 * complete and available. `minAvailable` does not protect replicas that are not active, as they
 * serve nobody.
 */
export function decideBlueGreen(observed: RolloutObserved, strategy: BlueGreen): RolloutDecision {
  const world = worldOf(observed, strategy);
  if (world.complete && strategy.maySwitch)
    return { kind: 'steps', steps: [{ kind: 'switchVersion', version: observed.version }] };
  const { want } = observed;
  const { live, draining } = world;
  // The maximum of live replicas covers both sets.
  const acts = actsOf({ ...observed, maxSurge: want }, { ...world.active, live, draining });
  const room = 2 * want + draining - live - acts.creates.length;
  const creates = world.missing.length <= room ? world.missing : [];
  const steps = toSteps({
    creates: [...acts.creates, ...creates],
    stops: [...acts.stops, ...world.needless],
  });
  if (steps.length > 0) return { kind: 'steps', steps };
  return whyWaiting(observed, world) ?? { kind: 'converged' };
}

interface World {
  readonly live: number;
  readonly draining: number;
  /** Unconfirmed stops of any version. */
  readonly leaving: number;
  readonly active: Tally;
  /** The new set; undefined when the active version is the wanted one, or the rollout is paused. */
  readonly next: Tally | undefined;
  /** Replicas that the new set lacks. */
  readonly missing: readonly Missing[];
  /** Whether the new set is complete and available. */
  readonly complete: boolean;
  /** Replicas of neither set, which may stop at once. */
  readonly needless: readonly RolloutReplica[];
  /** Number of replicas that stay beside the active set. */
  readonly beside: number;
}

function worldOf(observed: RolloutObserved, strategy: BlueGreen): World {
  const { want, version } = observed;
  const { activeVersion } = strategy;
  const isActive = (replica: RolloutReplica): boolean => replica.version === activeVersion;
  const active = tallyOf(observed.replicas.filter(isActive), chooseVersion(activeVersion, want));
  const others = observed.replicas.filter((replica) => isStaying(replica) && !isActive(replica));
  const mayStay = (replica: RolloutReplica): boolean =>
    !replica.draining && mayRemain(replica, observed, strategy);
  const remain = others.filter(mayStay);
  const needless = byDisruptionOrder([
    ...others.filter((replica) => !mayStay(replica)),
    ...excessOf(remain, want),
  ]);
  const isNext = observed.paused !== true && activeVersion !== version;
  const next = isNext ? tallyOf(remain, chooseVersion(version, want)) : undefined;
  const live = countOf(observed.replicas, (replica) => !replica.lost);
  return {
    live,
    draining: countOf(observed.replicas, (replica) => !replica.lost && replica.draining),
    leaving: countOf(
      observed.replicas,
      (replica) => !replica.lost && replica.desired === 'stopped',
    ),
    active,
    next,
    missing: next?.missing ?? [],
    complete: next !== undefined && next.ready >= want && (want > 0 || live === 0),
    needless,
    beside: others.length - needless.length,
  };
}

/**
 * Tells whether a replica that is not active may stay: a member of the new set; without a new set,
 * one of the former version while it is kept; while paused, every replica.
 */
function mayRemain(
  { version }: RolloutReplica,
  observed: RolloutObserved,
  { activeVersion, keepVersion }: BlueGreen,
): boolean {
  if (observed.paused === true) return true;
  return activeVersion === observed.version
    ? version === keepVersion
    : version === observed.version;
}

function whyWaiting(observed: RolloutObserved, world: World): RolloutDecision | undefined {
  const { want, version, paused } = observed;
  const { active, next, beside, leaving } = world;
  if (world.complete)
    return waitFor(
      'promotion',
      'permission',
      `version ${version} is complete and ready, and waits for a promotion`,
    );
  const unfinished = next === undefined ? undefined : whyUnfinished(observed, next);
  const why = unfinished ?? whySetWaits({ ...observed, maxSurge: want }, { ...active, leaving });
  if (why !== undefined) return why;
  assert(next === undefined, 'only stopping replicas occupy the room of a new set');
  const others = countOf(
    observed.replicas,
    (replica) => isStaying(replica) && replica.version !== version,
  );
  if (paused === true) return others > 0 ? pausedWith(others) : undefined;
  return beside > 0
    ? waitFor('kept', 'permission', `${replicas(beside)} of the previous version are kept`)
    : undefined;
}

/** Why the new set is not available; undefined when it waits for room. */
function whyUnfinished(
  { want, version }: RolloutObserved,
  next: Tally,
): RolloutDecision | undefined {
  const ready = `${next.ready} of ${want} replicas of version ${version}`;
  if (next.unready > 0)
    return waitFor('notReady', 'replicas', `${ready} are ready, ${next.unready} not yet`);
  if (next.unproven === 0) return undefined;
  return waitFor(
    'unproven',
    'replicas',
    `${ready} are available; ${next.unproven} not yet: ready for less than min_ready_duration, or on silent nodes`,
  );
}
