import type { RolloutObserved, RolloutReplica } from './observed.js';
import {
  sortByDisruptionOrder,
  findExcess,
  isAvailable,
  isUnready,
  type ChooseReplicas,
} from './replica-tally.js';

/**
 * Keeps one replica of `version` on each target node (mode GLOBAL). A replacement is created beside
 * the outdated replica when the maximum of live replicas allows it, else after its stop. Outdated
 * replicas that already have a replacement on their node stop first, so that no node is without a
 * replica.
 * @param replicas - All replicas: nodes where none of them is live come first.
 */
export function chooseGlobalTargets(
  globalTargets: readonly string[],
  version: number,
  replicas: readonly RolloutReplica[],
): ChooseReplicas {
  return (candidates) => {
    const targets = groupByTarget(globalTargets, candidates);
    const withoutVersion = targets.filter(({ replicas }) =>
      replicas.every((replica) => replica.version !== version),
    );
    const withOutdated = targets.filter(({ replicas }) =>
      replicas.some((replica) => replica.version !== version),
    );
    const outdatedTargets = withOutdated
      .map((target) => toOutdatedTarget(target, version))
      .sort(compareStopOrder);
    // Target nodes that only an outdated replica serves.
    const servedNodeIds = new Set(
      outdatedTargets
        .filter(
          ({ successor, oldestServing }) =>
            successor === NO_SUCCESSOR && oldestServing > NONE_SERVING,
        )
        .map(({ nodeId }) => nodeId),
    );
    // Nodes that no replica serves come first: their new replicas need no surge.
    const unservedNodeIds = withoutVersion
      .map(({ nodeId }) => nodeId)
      .filter((nodeId) => !servedNodeIds.has(nodeId));
    return {
      surplus: [],
      outdated: outdatedTargets.flatMap(({ outdated }) => outdated),
      missing: [...sortEmptyFirst(unservedNodeIds, replicas), ...servedNodeIds].map((nodeId) => ({
        version,
        nodeId,
      })),
    };
  };
}

/** A target node with replicas to replace. */
interface OutdatedTarget {
  readonly nodeId: string;
  readonly outdated: readonly RolloutReplica[];
  /** State of the replica of the wanted version; the lowest number stops its predecessor first. */
  readonly successor: typeof AVAILABLE | typeof NOT_AVAILABLE | typeof NO_SUCCESSOR;
  /** Sequence of the oldest outdated replica that serves; {@link NONE_SERVING} when none does. */
  readonly oldestServing: number;
}
const AVAILABLE = 0;
const NOT_AVAILABLE = 1;
const NO_SUCCESSOR = 2;
/** Below every sequence number. */
const NONE_SERVING = -1;

function toOutdatedTarget({ nodeId, replicas }: GlobalTarget, version: number): OutdatedTarget {
  const outdated = replicas.filter((replica) => replica.version !== version);
  const current =
    replicas.length === outdated.length
      ? []
      : replicas.filter((replica) => replica.version === version);
  const serving = outdated.filter((replica) => !isUnready(replica));
  return {
    nodeId,
    outdated,
    successor: current.some(isAvailable)
      ? AVAILABLE
      : current.length > 0
        ? NOT_AVAILABLE
        : NO_SUCCESSOR,
    oldestServing:
      serving.length === 0
        ? NONE_SERVING
        : Math.min(...serving.map(({ createdSequence }) => createdSequence)),
  };
}

const compareStopOrder = (a: OutdatedTarget, b: OutdatedTarget): number =>
  a.successor - b.successor || b.oldestServing - a.oldestServing || (a.nodeId < b.nodeId ? -1 : 1);

/**
 * Keeps one replica of any version on each target node, while the rollout is paused.
 * @param replicas - All replicas: nodes where none of them is live come first.
 */
export function choosePausedGlobalTargets(
  globalTargets: readonly string[],
  baseVersion: number,
  replicas: readonly RolloutReplica[],
): ChooseReplicas {
  return (candidates) => {
    const emptyNodeIds = groupByTarget(globalTargets, candidates).flatMap(({ nodeId, replicas }) =>
      replicas.length === 0 ? [nodeId] : [],
    );
    return {
      surplus: [],
      outdated: [],
      missing: sortEmptyFirst(emptyNodeIds, replicas).map((nodeId) => ({
        version: baseVersion,
        nodeId,
      })),
    };
  };
}

/**
 * Sorts nodes by id: first those without a live replica, then those where a replica still ends. So
 * without a surge a new replica never starts beside another.
 */
function sortEmptyFirst(
  nodeIds: readonly string[],
  replicas: readonly RolloutReplica[],
): readonly string[] {
  if (nodeIds.length <= 1) return nodeIds;
  const occupied = new Set(replicas.flatMap(({ lost, nodeId }) => (lost ? [] : (nodeId ?? []))));
  const rank = (nodeId: string): number => (occupied.has(nodeId) ? 1 : 0);
  return [...nodeIds].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

/**
 * Returns the replicas that have to leave because their node has another replica: of the wanted
 * version, or, while paused, of any version, where replicas beside another version stay up to
 * `maxSurge`.
 * @param candidates - Only replicas that are on a target node and could stay there.
 */
export function findDuplicates(
  { paused, maxSurge, version }: RolloutObserved,
  globalTargets: readonly string[],
  candidates: readonly RolloutReplica[],
): ReadonlySet<RolloutReplica> {
  if (new Set(candidates.map(({ nodeId }) => nodeId)).size === candidates.length) return new Set();
  const shared = groupByTarget(globalTargets, candidates).filter(
    ({ replicas }) => replicas.length > 1,
  );
  if (paused !== true) {
    const current = shared.map(({ replicas }) =>
      replicas.filter((replica) => replica.version === version),
    );
    return new Set(current.flatMap((replicas) => replicas.slice(0, -1)));
  }
  const sameVersion: RolloutReplica[] = [];
  const otherVersion: RolloutReplica[] = [];
  for (const { replicas } of shared)
    for (const replica of replicas.slice(0, -1))
      (replica.version === replicas.at(-1)?.version ? sameVersion : otherVersion).push(replica);
  return new Set([...sameVersion, ...findExcess(otherVersion, maxSurge)]);
}

interface GlobalTarget {
  readonly nodeId: string;
  /** In disruption order: the replica to keep is the last. */
  readonly replicas: readonly RolloutReplica[];
}

/**
 * Returns every target node with its replicas.
 * @param candidates - Only replicas on target nodes.
 */
function groupByTarget(
  globalTargets: readonly string[],
  candidates: readonly RolloutReplica[],
): GlobalTarget[] {
  const byNode = new Map<string, RolloutReplica[]>(globalTargets.map((nodeId) => [nodeId, []]));
  for (const replica of candidates) byNode.get(replica.nodeId ?? '')?.push(replica);
  return [...byNode].map(([nodeId, replicas]): GlobalTarget => ({
    nodeId,
    replicas: replicas.length > 1 ? sortByDisruptionOrder(replicas) : replicas,
  }));
}
