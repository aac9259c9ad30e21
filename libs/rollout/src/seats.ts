import type { RolloutObserved, RolloutReplica } from './observed.js';
import { byDisruptionOrder, excessOf, isReady, isUnready, type Choose } from './tally.js';

/**
 * One replica of `version` on each seat. Where an old one sits, the new one comes beside it if the
 * ceiling allows, else after it; the old ones that a new one already sits beside go first, so that
 * seats are not left empty.
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
    // Empty seats first: they need no surge.
    const empty = open.map(({ nodeId }) => nodeId).filter((nodeId) => !isServed.has(nodeId));
    return {
      surplus: [],
      outdated: inOrder.flatMap(({ old }) => old),
      missing: [...empty.sort(), ...isServed].map((nodeId) => ({ version, nodeId })),
    };
  };
}

/** A seat with replicas to be replaced. */
interface OutdatedSeat {
  readonly nodeId: string;
  readonly old: readonly RolloutReplica[];
  /** Who stands by: 0 a ready new one, 1 one that is not ready, else {@link NOBODY_NEW}. */
  readonly standing: number;
  /** When the one that serves longest was made; {@link NOBODY} when none does. */
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

/** A replica of any version on each seat. */
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
 * Replicas that have to leave as another one sits on the same seat: of the same version, or, while
 * paused, of another version beyond the surge.
 * @param candidates - Only replicas that sit on a seat and could stay there.
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
  /** Cheapest to lose first. */
  readonly sitting: readonly RolloutReplica[];
}

/** Every seat with who sits there. @param candidates - Only replicas that sit on one. */
function seatsOf(seats: readonly string[], candidates: readonly RolloutReplica[]): Seat[] {
  const sitting = new Map<string, RolloutReplica[]>(seats.map((nodeId) => [nodeId, []]));
  for (const replica of candidates) sitting.get(replica.nodeId ?? '')?.push(replica);
  return [...sitting].map(([nodeId, replicas]) => ({
    nodeId,
    sitting: replicas.length > 1 ? byDisruptionOrder(replicas) : replicas,
  }));
}
