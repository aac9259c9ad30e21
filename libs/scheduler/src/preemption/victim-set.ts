import type { WorkloadId } from '@cloudless/base';
import type { HeldReservation } from '../input/reservation.js';
import { compareNumbers, compareText } from '../order.js';
import { amountOf } from './demand.js';
import { compareVictimPriorities, type Evictability } from './preemption.js';

/** Input of {@link findVictimSet}: one node. */
export interface VictimProblem {
  /** Reservations that may be evicted, in any order. */
  readonly candidates: readonly Candidate[];
  /** Reservations that have to be evicted, as they hold a requested host port. */
  readonly forced: readonly Candidate[];
  /** Indexes of the amounts that are short. */
  readonly dimensions: readonly number[];
  /** Names of the custom resources of the demand. */
  readonly custom: readonly string[];
  /** Amounts to free, in the order of `dimensions`, forced victims included. All above 0. */
  readonly shortages: readonly number[];
  /** Number of available replicas of a workload that may be evicted. */
  readonly permitsOf: (workloadId: WorkloadId) => number;
}

/** A reservation that may be evicted. */
export interface Candidate {
  readonly held: HeldReservation;
  readonly evictability: Exclude<Evictability, 'never'>;
}

/**
 * Most branches of the exact search on one node. Nodes with replicas of few sizes need less than a
 * hundred. Beyond the limit the best set found so far is used: still no victim of it can be spared.
 */
const MAX_BRANCHES = 4_000;

/**
 * Finds the best set of victims on a node: the priorities of the victims, compared from the highest
 * to the lowest, are as low as possible, and no victim can be spared. Among victims of equal
 * priority and equal use, replicas that are not available go first, then those with the later id.
 * @returns The victims sorted from the highest priority; undefined when no set suffices.
 */
export function findVictimSet(problem: VictimProblem): readonly Candidate[] | undefined {
  const permits = new Permits(problem.permitsOf);
  for (const candidate of problem.forced) if (!permits.take(candidate)) return undefined;
  const { dimensions, custom } = problem;
  const shortages = problem.shortages.map((shortage, index) => {
    const freed = problem.forced.reduce(
      (sum, { held }) => sum + amountOf(held.resources, dimensions[index] ?? 0, custom),
      0,
    );
    return shortage - freed;
  });
  if (shortages.every((shortage) => shortage <= 0)) return sortVictims(problem.forced);
  const forced = new Set(problem.forced);
  const items = problem.candidates
    .filter((candidate) => !forced.has(candidate))
    .map((candidate) => toItem(candidate, problem, shortages))
    .filter(({ share }) => share > 0)
    .sort(compareItems);
  const chosen = new VictimSearch(items, shortages, permits).run();
  return chosen === undefined
    ? undefined
    : sortVictims([...problem.forced, ...chosen.map(({ candidate }) => candidate)]);
}

/** A candidate with its use for the shortages. */
interface Item {
  readonly candidate: Candidate;
  readonly priority: number;
  /** What the eviction frees of each short amount. */
  readonly amounts: readonly number[];
  /** The largest part of a shortage that the eviction covers, from 0 to 1. */
  readonly share: number;
}

function toItem(
  candidate: Candidate,
  { dimensions, custom }: VictimProblem,
  shortages: readonly number[],
): Item {
  const amounts = dimensions.map((dimension) =>
    amountOf(candidate.held.resources, dimension, custom),
  );
  let share = 0;
  for (const [index, amount] of amounts.entries()) {
    const shortage = shortages[index] ?? 0;
    if (shortage > 0) share = Math.max(share, Math.min(1, amount / shortage));
  }
  return { candidate, priority: candidate.held.priority, amounts, share };
}

/** Orders by priority, highest first; then those to evict first: most useful, not available. */
function compareItems(a: Item, b: Item): number {
  return (
    compareNumbers(b.priority, a.priority) ||
    compareNumbers(b.share, a.share) ||
    compareCandidates(a.candidate, b.candidate)
  );
}

function compareCandidates(a: Candidate, b: Candidate): number {
  return (
    Number(a.evictability === 'counted') - Number(b.evictability === 'counted') ||
    compareReplicaIds(b.held.replicaId, a.held.replicaId)
  );
}

/**
 * Compares replica ids so that a later replica of a workload comes after an earlier one: ids end
 * with a sequence number.
 */
function compareReplicaIds(a: string, b: string): number {
  return a.length - b.length || compareText(a, b);
}

function sortVictims(victims: readonly Candidate[]): readonly Candidate[] {
  return [...victims].sort(
    (a, b) => compareNumbers(b.held.priority, a.held.priority) || compareCandidates(a, b),
  );
}

/** The permits that a search has taken. */
class Permits {
  private readonly left = new Map<WorkloadId, number>();

  constructor(private readonly permitsOf: (workloadId: WorkloadId) => number) {}

  /** Takes the permit of a candidate, if it needs one. @returns False when none is left. */
  take({ held: { workloadId }, evictability }: Candidate): boolean {
    if (evictability === 'free') return true;
    const left = this.left.get(workloadId) ?? this.permitsOf(workloadId);
    if (left <= 0) return false;
    this.left.set(workloadId, left - 1);
    return true;
  }

  giveBack({ held: { workloadId }, evictability }: Candidate): void {
    if (evictability === 'counted') this.left.set(workloadId, (this.left.get(workloadId) ?? 0) + 1);
  }
}

/**
 * Branch and bound over the candidates, from the highest priority to the lowest, so that the
 * priorities of the chosen candidates are a prefix of the list that is minimised.
 */
class VictimSearch {
  /** Sum of each short amount over the items from an index on. */
  private readonly remaining: readonly (readonly number[])[];
  private readonly chosen: Item[] = [];
  private readonly priorities: number[] = [];
  private best: readonly Item[] | undefined;
  private bestPriorities: readonly number[] = [];
  private branches = 0;

  constructor(
    private readonly items: readonly Item[],
    private readonly shortages: readonly number[],
    private readonly permits: Permits,
  ) {
    const remaining: (readonly number[])[] = [shortages.map(() => 0)];
    for (let index = items.length - 1; index >= 0; index -= 1) {
      const next = remaining.at(-1) ?? [];
      remaining.push(next.map((sum, short) => sum + (items[index]?.amounts[short] ?? 0)));
    }
    this.remaining = remaining.reverse();
  }

  run(): readonly Item[] | undefined {
    this.startFromGreedySet();
    this.explore(0, this.shortages, undefined);
    return this.best;
  }

  /** Evicts everything that the permits allow, then spares candidates, highest priority first. */
  private startFromGreedySet(): void {
    const evicted = this.items.filter(({ candidate }) => this.permits.take(candidate));
    for (const { candidate } of evicted) this.permits.giveBack(candidate);
    const surplus = this.shortages.map(
      (shortage, index) =>
        evicted.reduce((sum, { amounts }) => sum + (amounts[index] ?? 0), 0) - shortage,
    );
    if (surplus.some((amount) => amount < 0)) return;
    const spared = new Set<Item>();
    for (const item of [...evicted].sort(compareSparing)) {
      if (item.amounts.some((amount, index) => amount > (surplus[index] ?? 0))) continue;
      spared.add(item);
      for (const [index, amount] of item.amounts.entries())
        surplus[index] = (surplus[index] ?? 0) - amount;
    }
    this.best = evicted.filter((item) => !spared.has(item));
    this.bestPriorities = this.best.map(({ priority }) => priority);
  }

  /**
   * @param index - The next item to decide about.
   * @param shortages - What is still short.
   * @param skipped - The last item that was skipped: an equal item is skipped, too.
   */
  private explore(index: number, shortages: readonly number[], skipped: Item | undefined): void {
    if (shortages.every((shortage) => shortage <= 0)) {
      this.keepIfBetter();
      return;
    }
    this.branches += 1;
    const item = this.items[index];
    if (item === undefined || this.branches > MAX_BRANCHES) return;
    const remaining = this.remaining[index] ?? [];
    if (shortages.some((shortage, short) => shortage > (remaining[short] ?? 0))) return;
    if (!this.mayImprove(index, shortages)) return;
    if (skipped === undefined || !isEqualItem(item, skipped))
      this.exploreWith(item, index, shortages);
    this.explore(index + 1, shortages, item);
  }

  private exploreWith(item: Item, index: number, shortages: readonly number[]): void {
    if (!this.permits.take(item.candidate)) return;
    this.chosen.push(item);
    this.priorities.push(item.priority);
    this.explore(
      index + 1,
      shortages.map((shortage, short) => shortage - (item.amounts[short] ?? 0)),
      undefined,
    );
    this.chosen.pop();
    this.priorities.pop();
    this.permits.giveBack(item.candidate);
  }

  /**
   * Returns false when even the smallest number of further victims of the next priority, given all
   * candidates of lower priorities, is no better than the best set.
   */
  private mayImprove(from: number, shortages: readonly number[]): boolean {
    if (this.best === undefined) return true;
    const priority = this.items[from]?.priority ?? 0;
    let end = from;
    while (this.items[end]?.priority === priority) end += 1;
    const below = this.remaining[end] ?? [];
    let needed = 0;
    for (const [short, shortage] of shortages.entries()) {
      const missing = shortage - (below[short] ?? 0);
      if (missing <= 0) continue;
      let largest = 0;
      for (let index = from; index < end; index += 1)
        largest = Math.max(largest, this.items[index]?.amounts[short] ?? 0);
      needed = Math.max(needed, largest === 0 ? end - from : Math.ceil(missing / largest));
    }
    const bound = [...this.priorities, ...new Array<number>(needed).fill(priority)];
    // Something is still short, so a set with these priorities alone may have further victims.
    return compareVictimPriorities(bound, this.bestPriorities) < 0;
  }

  private keepIfBetter(): void {
    if (
      this.best !== undefined &&
      compareVictimPriorities(this.priorities, this.bestPriorities) >= 0
    )
      return;
    this.best = [...this.chosen];
    this.bestPriorities = [...this.priorities];
  }
}

/** Orders by who is spared first: the highest priority, then the least useful and available. */
function compareSparing(a: Item, b: Item): number {
  return (
    compareNumbers(b.priority, a.priority) ||
    compareNumbers(a.share, b.share) ||
    compareCandidates(b.candidate, a.candidate)
  );
}

/** Returns true when the eviction of either item has the same price and effect. */
function isEqualItem(a: Item, b: Item): boolean {
  return (
    a.priority === b.priority &&
    a.candidate.evictability === b.candidate.evictability &&
    (a.candidate.evictability === 'free' ||
      a.candidate.held.workloadId === b.candidate.held.workloadId) &&
    a.amounts.every((amount, index) => amount === b.amounts[index])
  );
}
