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
 */
export function chooseGlobalTargets(
  globalTargets: readonly string[],
  version: number,
): ChooseReplicas {
  return (candidates) => {
    const all = groupByTarget(globalTargets, candidates);
    const withoutVersion = all.filter(({ replicas }) =>
      replicas.every((replica) => replica.version !== version),
    );
    const outdatedTargets = all.filter(({ replicas }) =>
      replicas.some((replica) => replica.version !== version),
    );
    const inOrder = outdatedTargets
      .map((target) => toOutdatedTarget(target, version))
      .sort(compareStopOrder);
    const served = inOrder.filter(
      ({ successor, oldestServing }) => successor === NO_SUCCESSOR && oldestServing > NONE_SERVING,
    );
    const isServed = new Set(served.map(({ nodeId }) => nodeId));
    // Nodes without a replica come first: they need no surge.
    const empty = withoutVersion
      .map(({ nodeId }) => nodeId)
      .filter((nodeId) => !isServed.has(nodeId));
    return {
      surplus: [],
      outdated: inOrder.flatMap(({ outdated }) => outdated),
      missing: [...empty.sort(), ...isServed].map((nodeId) => ({ version, nodeId })),
    };
  };
}

/** A target node with replicas to replace. */
interface OutdatedTarget {
  readonly nodeId: string;
  readonly outdated: readonly RolloutReplica[];
  /** State of the replacement: 0 available, 1 not available, else {@link NO_SUCCESSOR}. */
  readonly successor: number;
  /** Sequence of the oldest outdated replica that serves; {@link NONE_SERVING} when none does. */
  readonly oldestServing: number;
}
const NO_SUCCESSOR = 2;
const NONE_SERVING = -1;

function toOutdatedTarget({ nodeId, replicas }: GlobalTarget, version: number): OutdatedTarget {
  const old = replicas.filter((replica) => replica.version !== version);
  const current =
    replicas.length === old.length ? [] : replicas.filter((replica) => replica.version === version);
  const serving = old.filter((replica) => !isUnready(replica));
  return {
    nodeId,
    outdated: old,
    successor: current.some(isAvailable) ? 0 : current.length > 0 ? 1 : NO_SUCCESSOR,
    oldestServing:
      serving.length === 0
        ? NONE_SERVING
        : Math.min(...serving.map(({ createdSequence }) => createdSequence)),
  };
}

const compareStopOrder = (a: OutdatedTarget, b: OutdatedTarget): number =>
  a.successor - b.successor || b.oldestServing - a.oldestServing || (a.nodeId < b.nodeId ? -1 : 1);

/** Keeps one replica of any version on each target node. */
export function choosePausedGlobalTargets(
  globalTargets: readonly string[],
  baseVersion: number,
): ChooseReplicas {
  return (candidates) => {
    const empty = groupByTarget(globalTargets, candidates).flatMap(({ nodeId, replicas }) =>
      replicas.length === 0 ? [nodeId] : [],
    );
    return {
      surplus: [],
      outdated: [],
      missing: empty.sort().map((nodeId) => ({ version: baseVersion, nodeId })),
    };
  };
}

/**
 * Replicas that have to leave because their node has another one: of the same version, or, while
 * paused, of another version beyond the surge.
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
    return new Set(current.flatMap((alike) => alike.slice(0, -1)));
  }
  const [sameVersion, mixed]: [RolloutReplica[], RolloutReplica[]] = [[], []];
  for (const { replicas } of shared)
    for (const replica of replicas.slice(0, -1))
      (replica.version === replicas.at(-1)?.version ? sameVersion : mixed).push(replica);
  return new Set([...sameVersion, ...findExcess(mixed, maxSurge)]);
}

interface GlobalTarget {
  readonly nodeId: string;
  /** In disruption order. */
  readonly replicas: readonly RolloutReplica[];
}

/**
 * Every target node with its replicas.
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
