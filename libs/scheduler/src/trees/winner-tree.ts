import type { NodeTable } from '../columns/node-table.js';
import { NO_VALUE, type Slot } from '../columns/value-column.js';
import type { DomainCounts } from '../reservations/domain-counts.js';
import type { WorkloadCounts } from '../reservations/workload-counts.js';
import { EXCLUDED } from '../signatures/class-scores.js';
import type { RequestPlan } from '../signatures/request-plan.js';
import { Ranking } from './ranking.js';
import { SpreadCeiling } from './spread-ceiling.js';
import { NO_TREE_NODE, type TreeShape } from './tree-shape.js';

/** Counts what trees do, for tests and reports. */
export interface TreeWork {
  leavesUpdated: number;
}

/** A fourth of the cost of walking one path per inner node: beyond, one sweep is cheaper. */
const PATHS_PER_SWEEP = 16;

/**
 * Knows the best node for one request at any time. Each inner node holds the better of the winners
 * of its children, so a change of one node is a walk from its leaf to the root.
 */
export class WinnerTree {
  /** Position in the log of changed slots up to which the tree has caught up. */
  position: number;
  private readonly ranking: Ranking;
  private readonly ceiling: SpreadCeiling | undefined;
  private readonly scores: Float64Array;
  /** Winning slot by index of the inner node. */
  private readonly winners: Int32Array;
  /** 1 for slots whose leaves are refreshed at the moment. */
  private readonly refreshed: Uint8Array;
  /** Slots that a call has tried placements on, whose leaves are stale after the call. */
  private tried: Slot[] = [];
  /** Positions in the change logs of the counts that decide about leaves. */
  private readonly seen = new Map<DomainCounts, number>();
  /** Number of affinity terms that allow every node because nothing matches them yet. */
  private openStarts = 0;
  /** Replicas with terms that concern the request are newer than the leaves. */
  private isRepelledAnew = false;
  /** Revision of the nodes that {@link ceiling} knows; reservations do not change its nodes. */
  private ceilingRevision = -1;

  /**
   * @param twin - A tree with equal scores, up to date, of a workload without replicas; the new tree
   *   is a copy in which only the winners on the paths to the root from the nodes with replicas of
   *   the workload are decided anew.
   */
  constructor(
    readonly plan: RequestPlan,
    private readonly table: NodeTable,
    private readonly shape: TreeShape,
    private readonly counts: WorkloadCounts,
    private readonly work: TreeWork,
    position: number,
    twin?: WinnerTree,
  ) {
    this.position = position;
    const { spread } = plan.request;
    this.ranking = new Ranking(table, counts, plan.request);
    this.ceiling =
      spread?.mode === 'required'
        ? new SpreadCeiling(table, plan, this.ranking, spread.maxSkew)
        : undefined;
    this.scores = new Float64Array(shape.capacity).fill(EXCLUDED);
    this.winners = new Int32Array(shape.innerCount);
    this.refreshed = new Uint8Array(shape.capacity);
    if (twin === undefined) this.rebuild();
    else this.copyFrom(twin);
    this.ceiling?.recount();
  }

  /**
   * Brings the tree up to date.
   * @param changed - Slots that have changed since {@link position}; undefined when unknown.
   */
  catchUp(changed: Int32Array | undefined, position: number): void {
    this.position = position;
    this.plan.refresh();
    const { tried } = this;
    this.tried = [];
    this.findRepels();
    if (changed === undefined || this.isRepelledAnew) this.rebuild();
    else {
      this.refreshLeaves(tried.length === 0 ? changed : Int32Array.of(...tried, ...changed));
      this.ceilingRevision = this.table.nodeRevision;
      this.followCounts();
    }
    this.ceiling?.recount();
  }

  /** Looks at the terms of replicas that are new, which {@link catchUp} heeds. */
  findRepels(): void {
    if (this.plan.terms.findRepels()) this.isRepelledAnew = true;
  }

  /** Brings the tree up to date as a copy of a twin, like a new tree: faster after many changes. */
  catchUpFrom(twin: WinnerTree, position: number): void {
    this.position = position;
    this.plan.refresh();
    this.tried = [];
    this.copyFrom(twin);
    this.ceiling?.recount();
  }

  /** Returns the best slot for the next replica; undefined when no node fits. */
  best(): Slot | undefined {
    const { root } = this.shape;
    if (root === NO_TREE_NODE) return undefined;
    const slot = this.winnerOf(root);
    if (this.scores[slot] === EXCLUDED || this.ceiling?.excludes(slot) === true) return undefined;
    return slot;
  }

  /** Returns the score of a slot that {@link best} returned. */
  scoreOf(slot: Slot): number {
    return this.scores[slot] ?? EXCLUDED;
  }

  /** Notes that a placement is tried on the slot until the next {@link catchUp}. */
  addPlacement(slot: Slot): void {
    this.tried.push(slot);
    this.ceiling?.addPlacement(slot);
    this.refreshScore(slot);
    this.refreshWinnersFrom(slot);
    this.followCounts();
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    return this.scores.byteLength + this.winners.byteLength + this.refreshed.byteLength;
  }

  private copyFrom(twin: WinnerTree): void {
    this.scores.set(twin.scores);
    this.winners.set(twin.winners);
    if (twin.ceiling !== undefined) this.ceiling?.copyFrom(twin.ceiling);
    this.ceilingRevision = twin.ceilingRevision;
    if (!this.counts.isEmpty) {
      // Domains and zones with replicas are those of the nodes with replicas.
      const occupied = this.counts.listOccupiedSlots();
      if (occupied.length * PATHS_PER_SWEEP > this.shape.innerCount) this.refreshAllWinners();
      else for (const slot of occupied) this.refreshWinnersFrom(slot);
    }
    this.followAnew();
  }

  private rebuild(): void {
    const { slots } = this.shape;
    this.plan.scoreAll(slots, this.scores);
    this.work.leavesUpdated += slots.length;
    const { ceiling } = this;
    if (ceiling !== undefined && this.ceilingRevision !== this.table.nodeRevision)
      for (const slot of slots) ceiling.refreshNode(slot, this.scores[slot] !== EXCLUDED);
    this.ceilingRevision = this.table.nodeRevision;
    this.refreshAllWinners();
    this.followAnew();
  }

  /** Takes the counts of the terms as they are now for those that the leaves rest on. */
  private followAnew(): void {
    this.isRepelledAnew = false;
    for (const counts of this.plan.terms.allCounts) this.seen.set(counts, counts.changes.position);
    this.openStarts = this.countOpenStarts();
  }

  /** @param slots - Slots whose nodes may have changed, some of them several times. */
  private refreshLeaves(slots: readonly Slot[] | Int32Array): void {
    const { capacity, innerCount } = this.shape;
    const { refreshed } = this;
    for (const slot of slots) {
      if (slot >= capacity || refreshed[slot] === 1) continue;
      if (this.table.records[slot] === undefined) continue;
      refreshed[slot] = 1;
      this.refreshScore(slot);
    }
    const isSweep = slots.length * PATHS_PER_SWEEP > innerCount;
    if (isSweep) this.refreshAllWinners();
    for (const slot of slots) {
      if (refreshed[slot] !== 1) continue;
      refreshed[slot] = 0;
      if (!isSweep) this.refreshWinnersFrom(slot);
    }
  }

  /** Refreshes the leaves of domains that got their first replica or lost their last. */
  private followCounts(): void {
    const { terms } = this.plan;
    if (terms.isEmpty) return;
    const openStarts = this.countOpenStarts();
    if (openStarts !== this.openStarts) {
      if (openStarts > this.openStarts || terms.hasPreferences) {
        this.rebuild();
        return;
      }
      this.closeStarts();
    }
    for (const [counts, position] of this.seen) {
      if (counts.changes.position === position) continue;
      this.seen.set(counts, counts.changes.position);
      // A node that is a domain of its own is among the changed slots anyway.
      if (counts.isPerNode) continue;
      const domains = counts.changes.since(position);
      if (domains === undefined) {
        this.rebuild();
        return;
      }
      for (const domain of new Set(domains)) this.refreshLeaves(counts.column.slotsWith(domain));
    }
  }

  /**
   * Excludes the nodes far from the first replicas of the workload. The scores of all others stay,
   * as no preference counts replicas.
   */
  private closeStarts(): void {
    const { scores } = this;
    const { terms } = this.plan;
    for (const slot of this.shape.slots)
      if (scores[slot] !== EXCLUDED && !terms.allow(slot)) scores[slot] = EXCLUDED;
    // The only such term was open for all nodes; among several, the changed domains tell the rest.
    const [only, ...others] = terms.openingCounts;
    if (only !== undefined && others.length === 0) this.seen.set(only, only.changes.position);
    this.openStarts = this.countOpenStarts();
    this.refreshAllWinners();
  }

  private countOpenStarts(): number {
    let open = 0;
    for (const { occupied } of this.plan.terms.openingCounts) if (occupied === 0) open += 1;
    return open;
  }

  private refreshScore(slot: Slot): void {
    this.work.leavesUpdated += 1;
    this.plan.writeScore(slot, this.scores);
    if (this.ceiling !== undefined && this.ceilingRevision !== this.table.nodeRevision)
      this.ceiling.refreshNode(slot, this.scores[slot] !== EXCLUDED);
  }

  private refreshAllWinners(): void {
    if (this.counts.isEmpty && !this.shape.hasSlotsInNoDomain) this.refreshAllByScore();
    else for (let index = 0; index < this.winners.length; index += 1) this.decide(index);
  }

  /** The same while all counts are equal, so that scores and ids alone decide. */
  private refreshAllByScore(): void {
    const { capacity, left, right } = this.shape;
    const { winners, scores, ranking } = this;
    for (let index = 0; index < winners.length; index += 1) {
      const leftId = left[index] ?? 0;
      const rightId = right[index] ?? 0;
      const a = leftId < capacity ? leftId : (winners[leftId - capacity] ?? 0);
      const b = rightId < capacity ? rightId : (winners[rightId - capacity] ?? 0);
      const scoreA = scores[a] ?? EXCLUDED;
      const scoreB = scores[b] ?? EXCLUDED;
      const wins = scoreB > scoreA || (scoreB === scoreA && ranking.hasSmallerId(b, a));
      winners[index] = wins ? b : a;
    }
  }

  /** Decides anew on the way from a leaf to the root, and from other parts of its domain. */
  private refreshWinnersFrom(slot: Slot): void {
    this.walkUp(slot);
    const { partsOf, spreadDomainOf } = this.shape;
    const parts = partsOf?.get(spreadDomainOf?.[slot] ?? NO_VALUE);
    if (parts !== undefined) for (const part of parts) this.walkUp(part);
  }

  /**
   * Only the child on the way has changed in each inner node, so each level compares the winner so
   * far with the winner of the other child.
   */
  private walkUp(id: number): void {
    const { capacity, parentOf, siblingOf, sharesCounts } = this.shape;
    const { winners, scores, ranking } = this;
    let winner = this.winnerOf(id);
    let score = scores[winner] ?? EXCLUDED;
    let at = id;
    let index = parentOf[at] ?? NO_TREE_NODE;
    while (index !== NO_TREE_NODE) {
      const sibling = siblingOf[at] ?? 0;
      const rival = sibling < capacity ? sibling : (winners[sibling - capacity] ?? 0);
      const rivalScore = scores[rival] ?? EXCLUDED;
      const wins =
        sharesCounts[index] === 1
          ? ranking.isBeforeInPart(rival, rivalScore, winner, score)
          : ranking.isBefore(rival, rivalScore, winner, score);
      if (wins) {
        winner = rival;
        score = rivalScore;
      }
      winners[index] = winner;
      at = capacity + index;
      index = parentOf[at] ?? NO_TREE_NODE;
    }
  }

  private decide(index: number): void {
    const a = this.winnerOf(this.shape.left[index] ?? 0);
    const b = this.winnerOf(this.shape.right[index] ?? 0);
    const { scores } = this;
    this.winners[index] = this.ranking.isBefore(b, scores[b] ?? EXCLUDED, a, scores[a] ?? EXCLUDED)
      ? b
      : a;
  }

  private winnerOf(id: number): Slot {
    const { capacity } = this.shape;
    return id < capacity ? id : (this.winners[id - capacity] ?? 0);
  }
}
