import { createExtraTest, type RolloutObserved, type RolloutReplica } from '@cloudless/rollout';

/** Replicas of one version that a decision creates. */
export interface CreatedVersion {
  /** Number of the version for users. */
  readonly version: number;
  /** True when the rollout leads to this version. */
  readonly isWanted: boolean;
  /** Number of created replicas. */
  readonly count: number;
  /** Number of replicas of the version that are present and may stay on their nodes. */
  readonly present: number;
}

/** The counts that explain creations. */
export interface CreateCounts {
  /** The created versions, at least one. */
  readonly created: readonly CreatedVersion[];
  /** Number of present replicas of all versions that may stay on their nodes. */
  readonly present: number;
  /** Number of present replicas of all versions, also those that have to leave their nodes. */
  readonly staying: number;
}

/**
 * Explains creations: which version, how many replicas are wanted and present, and, while others are
 * replaced, how many may be live. In a blue/green rollout both sets have the wanted number; else the
 * wanted number covers all versions.
 */
export function explainCreates(
  observed: RolloutObserved,
  { created, present, staying }: CreateCounts,
): string {
  const { want } = observed;
  const [first, ...others] = created;
  const isBlueGreen = observed.strategy?.kind === 'blueGreen';
  if (first !== undefined && others.length === 0 && (first.isWanted || isBlueGreen)) {
    const maxLive = computeMaxLive(observed);
    const limit = staying > first.present && maxLive > want ? `, at most ${maxLive} live` : '';
    return `version ${first.version}: ${want} wanted, ${first.present} present${limit}`;
  }
  const versions =
    first !== undefined && others.length === 0
      ? `version ${first.version}`
      : created.map(({ version, count }) => `${count} of version ${version}`).join(', ');
  return isBlueGreen
    ? `${versions}: ${want} wanted of each version`
    : `${versions}: ${want} wanted of all versions, ${present} present`;
}

/** Returns the largest number of live replicas that the strategy allows. */
function computeMaxLive(observed: RolloutObserved): number {
  const { want, maxSurge, replicas, strategy } = observed;
  const isBlueGreen = strategy?.kind === 'blueGreen';
  const allowsExtra = isBlueGreen
    ? ({ draining }: RolloutReplica) => draining
    : createExtraTest(observed);
  const extra = replicas.filter((replica) => !replica.lost && allowsExtra(replica)).length;
  return want + (isBlueGreen ? want : maxSurge) + extra;
}

/** The facts that explain stops. */
export type StopFacts = Pick<
  RolloutObserved,
  'want' | 'version' | 'minAvailable' | 'paused' | 'strategy'
> & {
  /** The stopped replicas. */
  readonly replicas: readonly RolloutReplica[];
  /** Number of {@link version} for users. */
  readonly shownVersion: number;
  /** True when the node of one of the replicas is being drained. */
  readonly isNodeDraining: boolean;
  /** Number of available replicas that are not ordered to stop. */
  readonly available: number;
};

/** Explains stops: their reason, and the availability that remains. */
export function explainStops(facts: StopFacts): string {
  const { minAvailable, available, replicas } = facts;
  const remaining = `${available} available ${available === 1 ? 'replica remains' : 'replicas remain'}`;
  if (replicas.some(({ forced }) => forced === true))
    return `the drain of the node is forced; ${remaining}, min_available ${minAvailable} is not enforced`;
  return `${explainStopReason(facts)}; ${remaining}, min_available is ${minAvailable}`;
}

function explainStopReason(facts: StopFacts): string {
  const { want, shownVersion, isNodeDraining, replicas } = facts;
  if (replicas.some(({ draining }) => draining))
    return isNodeDraining ? 'the node is being drained' : 'a taint of the node is not tolerated';
  const replaced = replicas.filter((replica) => isReplaced(replica, facts)).length;
  const surplus = `only ${want} ${want === 1 ? 'is' : 'are'} wanted`;
  if (replaced === 0) return surplus;
  const replacement = `replaced by version ${shownVersion}`;
  return replaced === replicas.length ? replacement : `${replaced} ${replacement}; ${surplus}`;
}

/**
 * Returns true when a replica of another version stops for the wanted version. While a rollout is
 * paused or nothing is wanted, and in the active set of a blue/green rollout, only surplus replicas
 * stop.
 */
function isReplaced(
  replica: RolloutReplica,
  { want, version, paused, strategy }: StopFacts,
): boolean {
  if (replica.version === version || paused === true || want === 0) return false;
  return strategy?.kind !== 'blueGreen' || replica.version !== strategy.activeVersion;
}
