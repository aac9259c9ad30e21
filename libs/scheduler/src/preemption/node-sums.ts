import type { Slot } from '../columns/value-column.js';
import type { HeldReservation } from '../input/reservation.js';
import { DIMENSIONS, REPLICA_DIMENSION, addAmounts, amountOf, type Demand } from './demand.js';
import { FreeAmounts } from './free-amounts.js';
import { HeldSums } from './held-sums.js';
import { FITS, FITS_AFTER_LEAVING } from './need.js';
import type { PreemptionNode, PreemptionSource } from './preemption-source.js';
import { PriorityIndex } from './priority-index.js';

/** The changes that are kept for columns of needs, for each node. */
const MAX_LOG_PER_NODE = 4;

/**
 * Free resources of each node and what its reservations hold by priority, by slot. Changed nodes
 * are summed anew before the next decision, from their few reservations.
 */
export class NodeSums {
  readonly amounts = new FreeAmounts();
  private readonly held = new HeldSums();
  readonly index = new PriorityIndex(this.amounts, this.held);
  /** Reservations of the nodes that were examined since they changed, by slot. */
  private readonly reservations: (readonly HeldReservation[] | undefined)[] = [];
  private readonly changed = new Set<Slot>();
  /** Slots of the nodes that have changed, oldest first, after {@link droppedChanges} others. */
  private changeLog: number[] = [];
  private droppedChanges = 0;
  private slots = 0;
  /** Result of {@link measureShortages}, in the order of the dimensions of the demand. */
  private readonly shortages = new Float64Array(DIMENSIONS);

  constructor(private readonly source: PreemptionSource) {
    for (let slot = 0; slot < source.size; slot += 1) this.changed.add(slot);
  }

  /** Notes a change of a node or of its reservations. */
  touch(slot: Slot): void {
    this.changed.add(slot);
  }

  /** Number of slots, with and without a node. */
  get size(): number {
    return this.slots;
  }

  /** Returns what preemption reads of the node of a slot; undefined without a node. */
  findNode(slot: Slot): PreemptionNode | undefined {
    return this.source.node(slot);
  }

  /** Number of changes so far. */
  get changes(): number {
    return this.droppedChanges + this.changeLog.length;
  }

  /**
   * Returns the slots that have changed since there were `seen` changes, some of them several
   * times; undefined when every node may have changed.
   */
  changesSince(seen: number): readonly Slot[] | undefined {
    return seen < this.droppedChanges
      ? undefined
      : this.changeLog.slice(seen - this.droppedChanges);
  }

  /**
   * Returns the reservations of a node, the lowest priority first, from memory when they have not
   * changed.
   */
  reservationsOn(slot: Slot): readonly HeldReservation[] {
    return (this.reservations[slot] ??= [...this.source.reservationsOn(slot)].sort(
      (a, b) => a.priority - b.priority,
    ));
  }

  /** Sums changed nodes anew. */
  refresh(): void {
    if (this.changed.size === 0) return;
    this.slots = this.source.size;
    this.amounts.grow(this.slots);
    for (const slot of this.changed) this.sum(slot);
    if (this.changeLog.length + this.changed.size > MAX_LOG_PER_NODE * this.slots)
      this.dropChanges();
    else for (const slot of this.changed) this.changeLog.push(slot);
    this.changed.clear();
  }

  /** Makes every column of needs be computed anew. */
  private dropChanges(): void {
    this.droppedChanges += this.changeLog.length + 1;
    this.changeLog = [];
  }

  /**
   * Returns what a request needs of a node, by number of replicas and resources but custom ones:
   * {@link FITS}, {@link FITS_AFTER_LEAVING}, `NEVER_FITS`, or a bound of the evictions. Of
   * two needs, the smaller one may have the better victims.
   * @param priority - Only reservations of lower priority may be evicted.
   */
  need(slot: Slot, demand: Demand, priority: number): number {
    const short = this.measureShortages(slot, demand);
    if (short === 'never') return FITS;
    if (short === 'until leaving') return FITS_AFTER_LEAVING;
    return this.held.findNeed(slot, demand.fixed, this.shortages, priority);
  }

  /**
   * Returns a lower bound of the priorities of a victim set of a node, from the highest to the
   * lowest, in the order of `compareVictimPriorities`. Tighter than {@link need}, and slower.
   */
  listLeastPriorities(slot: Slot, demand: Demand, priority: number): readonly number[] {
    if (this.measureShortages(slot, demand) !== 'always') return [];
    return this.held.listLeastPriorities(slot, demand.fixed, this.shortages, priority);
  }

  /**
   * Returns false when a node has not enough for a request after evictions up to a priority.
   * @param highest - Highest priority that is evicted.
   * @param isEvictable - Called for reservations that are not leaving, the lowest priority first,
   *   until they suffice.
   */
  isEnoughUpTo(
    slot: Slot,
    demand: Demand,
    highest: number,
    isEvictable: (held: HeldReservation) => boolean,
  ): boolean {
    if (this.measureShortages(slot, demand) !== 'always') return true;
    const { shortages } = this;
    const { fixed } = demand;
    for (const held of this.reservationsOn(slot)) {
      if (held.priority > highest) return false;
      if (held.leaving || !isEvictable(held)) continue;
      let isShort = false;
      for (let each = 0; each < fixed.length; each += 1) {
        const left = (shortages[each] ?? 0) - amountOf(held.resources, fixed[each] ?? 0);
        shortages[each] = left;
        if (left > 0) isShort = true;
      }
      if (!isShort) return true;
    }
    return false;
  }

  /** Stores what a request misses on a node in {@link shortages}, and returns for how long. */
  private measureShortages(
    slot: Slot,
    { fixed: dimensions, amounts }: Demand,
  ): 'never' | 'until leaving' | 'always' {
    const { shortages } = this;
    const { free, leaving } = this.amounts;
    const at = slot * DIMENSIONS;
    let isShort = false;
    let isShortNow = false;
    for (let each = 0; each < dimensions.length; each += 1) {
      const dimension = dimensions[each] ?? 0;
      const shortage = (amounts[dimension] ?? 0) - (free[at + dimension] ?? -Infinity);
      shortages[each] = shortage;
      if (shortage > 0) isShort = true;
      else if (shortage + (leaving[at + dimension] ?? 0) > 0) isShortNow = true;
    }
    if (isShort) return 'always';
    return isShortNow ? 'until leaving' : 'never';
  }

  private sum(slot: Slot): void {
    const { held, index } = this;
    index.remove(slot);
    this.reservations[slot] = undefined;
    const node = this.source.node(slot);
    const { free, leaving } = this.amounts;
    const at = slot * DIMENSIONS;
    leaving.fill(0, at, at + DIMENSIONS);
    held.start();
    if (node === undefined) free.fill(-Infinity, at, at + DIMENSIONS);
    else {
      free.fill(0, at, at + DIMENSIONS);
      addAmounts(free, at, node.allocatable, 1);
      free[at + REPLICA_DIMENSION] = node.maxReplicas;
      this.source.forEachClaim(slot, (claim, isLeaving) => {
        if (isLeaving) addAmounts(leaving, at, claim.resources, 1);
        else {
          addAmounts(free, at, claim.resources, -1);
          held.add(claim);
        }
      });
    }
    this.amounts.noteChange(slot);
    held.store(slot);
    index.add(slot);
  }
}
