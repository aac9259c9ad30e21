import type { RolloutObserved, RolloutReplica } from './observed.js';
import { byDisruptionOrder, excessOf, isReady, isUnready, type Choose } from './tally.js';

/**
 * Keeps one replica of `version` on each target node (mode GLOBAL). A replacement is created beside
 * the outdated replica when the maximum of live replicas allows it, else after its stop. Outdated
 * replicas that already have a replacement on their node stop first, so that no node is without a
 * replica.
 */
export function chooseSeats(seats: readonly string[], version: number): Choose {
  return (candidates) => {
    const all = seatsOf(seats, candidates);
    const open = all.filter(({ sitting }) =>
      sitting.every((replica) => replica.version !== version),
    );
    const outdated = all.filter(({ sitting }) =>
      sitting.some((replica) => replica.version !== version),
    );
    const inOrder = outdated.map((seat) => toOutdatedSeat(seat, version)).sort(byDeparture);
    const served = inOrder.filter(
      ({ standing, since }) => standing === NOBODY_NEW && since > NOBODY,
    );
    const isServed = new Set(served.map(({ nodeId }) => nodeId));
    // Nodes without a replica come first: they need no surge.
    const empty = open.map(({ nodeId }) => nodeId).filter((nodeId) => !isServed.has(nodeId));
    return {
      surplus: [],
      outdated: inOrder.flatMap(({ old }) => old),
      missing: [...empty.sort(), ...isServed].map((nodeId) => ({ version, nodeId })),
    };
  };
}

/** A target node with replicas to replace. */
interface OutdatedSeat {
  readonly nodeId: string;
  readonly old: readonly RolloutReplica[];
  /** State of the replacement: 0 available, 1 not available, else {@link NO_SUCCESSOR}. */
  readonly standing: number;
  /** Sequence of the oldest outdated replica that serves; {@link NONE_SERVING} when none does. */
  readonly since: number;
}
const NOBODY_NEW = 2;
const NOBODY = -1;

function toOutdatedSeat({ nodeId, sitting }: Seat, version: number): OutdatedSeat {
  const old = sitting.filter((replica) => replica.version !== version);
  const current =
    sitting.length === old.length ? [] : sitting.filter((replica) => replica.version === version);
  const serving = old.filter((replica) => !isUnready(replica));
  return {
    nodeId,
    old,
    standing: current.some(isReady) ? 0 : current.length > 0 ? 1 : NOBODY_NEW,
    since:
      serving.length === 0
        ? NOBODY
        : Math.min(...serving.map(({ createdSequence }) => createdSequence)),
  };
}

const byDeparture = (a: OutdatedSeat, b: OutdatedSeat): number =>
  a.standing - b.standing || b.since - a.since || (a.nodeId < b.nodeId ? -1 : 1);

/** Keeps one replica of any version on each target node. */
export function choosePausedSeats(seats: readonly string[], baseVersion: number): Choose {
  return (candidates) => {
    const empty = seatsOf(seats, candidates).flatMap(({ nodeId, sitting }) =>
      sitting.length === 0 ? [nodeId] : [],
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
export function crowdedOut(
  { paused, maxSurge, version }: RolloutObserved,
  seats: readonly string[],
  candidates: readonly RolloutReplica[],
): ReadonlySet<RolloutReplica> {
  if (new Set(candidates.map(({ nodeId }) => nodeId)).size === candidates.length) return new Set();
  const shared = seatsOf(seats, candidates).filter(({ sitting }) => sitting.length > 1);
  if (paused !== true) {
    const current = shared.map(({ sitting }) =>
      sitting.filter((replica) => replica.version === version),
    );
    return new Set(current.flatMap((alike) => alike.slice(0, -1)));
  }
  const [alike, mixed]: [RolloutReplica[], RolloutReplica[]] = [[], []];
  for (const { sitting } of shared)
    for (const replica of sitting.slice(0, -1))
      (replica.version === sitting.at(-1)?.version ? alike : mixed).push(replica);
  return new Set([...alike, ...excessOf(mixed, maxSurge)]);
}

interface Seat {
  readonly nodeId: string;
  /** In disruption order. */
  readonly sitting: readonly RolloutReplica[];
}

/**
 * Every target node with its replicas.
 * @param candidates - Only replicas on target nodes.
 */
function seatsOf(seats: readonly string[], candidates: readonly RolloutReplica[]): Seat[] {
  const sitting = new Map<string, RolloutReplica[]>(seats.map((nodeId) => [nodeId, []]));
  for (const replica of candidates) sitting.get(replica.nodeId ?? '')?.push(replica);
  return [...sitting].map(([nodeId, replicas]): Seat => ({
    nodeId,
    sitting: replicas.length > 1 ? byDisruptionOrder(replicas) : replicas,
  }));
}
