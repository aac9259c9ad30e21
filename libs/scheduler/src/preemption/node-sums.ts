import type { NodeId } from '@cloudless/base';
import type { HeldReservation } from '../input/reservation.js';
import { compareText } from '../order.js';
import { DIMENSIONS, REPLICA_DIMENSION, amountOf, toAmounts, type Demand } from './demand.js';
import type { PreemptionNode, PreemptionSource } from './preemption-source.js';
import { PriorityBands } from './priority-bands.js';
import { ReachColumns } from './reach-columns.js';

/** The node has the resources of the request now. */
export const FITS = -1;
/** The node has the resources as soon as its leaving replicas have ended. */
export const FITS_AFTER_LEAVING = 0;
/** No eviction of lower priorities is enough. */
export const NEVER_FITS = Infinity;

/** Number of largest reservations of a band whose sums are kept. A bound counts one more at most. */
const LARGEST = 3;

/** The changes that are kept for columns of needs, for each node. */
const MAX_LOG_PER_NODE = 4;

/** More than the replicas of a node. */
const BOUND_RADIX = 65_536;

/** Result of {@link NodeSums.listCheapest}. */
export interface CheapestNodes {
  readonly indexes: readonly number[];
  /** On every other node, a victim has at least this priority. */
  readonly nextPriority: number;
}

/** The bounds that one number of {@link NodeSums.need} holds. */
export interface VictimBound {
  /** No victim set of the node has a lower highest priority. */
  readonly priority: number;
  /** No victim set of the node has fewer victims of this priority or a higher one. */
  readonly victims: number;
}

/** Encodes a bound so that of two bounds the better one is the smaller number. */
export function toNeed({ priority, victims }: VictimBound): number {
  return (priority + 1) * BOUND_RADIX + victims;
}

/** Reads a result of {@link NodeSums.need} above {@link FITS_AFTER_LEAVING}. */
export function toVictimBound(need: number): VictimBound {
  return { priority: Math.floor(need / BOUND_RADIX) - 1, victims: need % BOUND_RADIX };
}

/**
 * Free resources of each node, and what its reservations hold by priority: prefix sums over the
 * bands and the largest reservation of each band, in columns over dense node indexes. Changed nodes
 * are summed anew before the next decision, from their few reservations.
 */
export class NodeSums {
  private readonly bands = new PriorityBands();
  private readonly indexOf = new Map<NodeId, number>();
  private readonly ids: (NodeId | undefined)[] = [];
  private readonly freeIndexes: number[] = [];
  /** Reservations of the nodes that were examined since they changed, by index. */
  private reservations: (readonly HeldReservation[] | undefined)[] = [];
  private readonly changed = new Set<NodeId>();
  /** Indexes of the nodes that have changed, oldest first, after {@link droppedChanges} others. */
  private changeLog: number[] = [];
  private droppedChanges = 0;
  private zones = new Map<string, number>();
  private zoneAt: number[] = [];
  private capacity = 0;
  /** Free amounts, with the resources of leaving replicas. */
  private free = new Float64Array(0);
  /** Amounts that leaving replicas hold. */
  private leaving = new Float64Array(0);
  /** Amounts that the reservations of a band and the bands below it hold. */
  private held = new Float64Array(0);
  /**
   * What a node has when everything below a band has left, band-major, so that all nodes are compared
   * in one run over memory.
   */
  private reach = new ReachColumns(0, 0);
  /** Sums of the largest, the two largest, … amounts of the reservations of a band. */
  private largest = new Float64Array(0);
  private ranks: Int32Array | undefined;
  /** Shortages of the last call to {@link need}, in the order of the dimensions of the demand. */
  private readonly shortages = new Float64Array(DIMENSIONS);

  constructor(private readonly source: PreemptionSource) {
    for (const nodeId of source.nodeIds()) this.changed.add(nodeId);
  }

  /** Notes a change of a node or of its reservations. */
  touch(nodeId: NodeId): void {
    this.changed.add(nodeId);
  }

  /** Number of dense indexes, with those of removed nodes. */
  get size(): number {
    return this.ids.length;
  }

  /** Returns the node of an index; undefined for a removed node. */
  nodeAt(index: number): NodeId | undefined {
    return this.ids[index];
  }

  /** Returns what preemption reads of the node of an index; undefined for a removed node. */
  findNode(index: number): PreemptionNode | undefined {
    const nodeId = this.ids[index];
    return nodeId === undefined ? undefined : this.source.node(nodeId);
  }

  index(nodeId: NodeId): number | undefined {
    return this.indexOf.get(nodeId);
  }

  /** Number of changes so far. */
  get changes(): number {
    return this.droppedChanges + this.changeLog.length;
  }

  /**
   * Returns the indexes that have changed since there were `seen` changes, some of them several
   * times; undefined when every node may have changed.
   */
  changesSince(seen: number): readonly number[] | undefined {
    return seen < this.droppedChanges
      ? undefined
      : this.changeLog.slice(seen - this.droppedChanges);
  }

  /** Returns the number of the zone of a node. */
  zoneOf(index: number): number {
    return this.zoneAt[index] ?? 0;
  }

  /** Number of different zones so far. */
  get zoneCount(): number {
    return this.zones.size;
  }

  /** Returns the reservations of a node, from memory when neither has changed. */
  reservationsOn(index: number): readonly HeldReservation[] {
    const kept = this.reservations[index];
    if (kept !== undefined) return kept;
    const nodeId = this.ids[index];
    const list = nodeId === undefined ? [] : this.source.reservationsOn(nodeId);
    this.reservations[index] = list;
    return list;
  }

  /** Returns the positions of the nodes in the order of their ids, by index. */
  rankById(): Int32Array {
    if (this.ranks !== undefined) return this.ranks;
    const ranks = new Int32Array(this.ids.length);
    const order = [...this.indexOf].sort(([a], [b]) => compareText(a, b));
    for (const [rank, [, index]] of order.entries()) ranks[index] = rank;
    this.ranks = ranks;
    return ranks;
  }

  /** Sums changed nodes anew. */
  refresh(): void {
    if (this.changed.size === 0) return;
    let bandsChanged = false;
    const nodes = Math.max(1, this.indexOf.size, this.changed.size);
    const changed = new Map<NodeId, readonly HeldReservation[]>();
    for (const nodeId of this.changed) {
      const reservations = this.source.reservationsOn(nodeId);
      changed.set(nodeId, reservations);
      for (const { priority, leaving } of reservations)
        if (!leaving && this.bands.add(priority, nodes)) bandsChanged = true;
    }
    this.changed.clear();
    for (const nodeId of changed.keys()) this.assignIndex(nodeId);
    if (bandsChanged || this.ids.length > this.capacity) {
      this.allocate();
      for (const nodeId of this.indexOf.keys())
        this.sum(nodeId, changed.get(nodeId) ?? this.source.reservationsOn(nodeId));
      this.reach.set(0, this.ids.length, this.free, this.held);
      this.dropChanges();
    } else
      for (const [nodeId, reservations] of changed) {
        const index = this.sum(nodeId, reservations);
        if (index !== undefined) this.reach.set(index, index + 1, this.free, this.held);
      }
    if (this.changeLog.length > MAX_LOG_PER_NODE * this.ids.length) this.dropChanges();
  }

  /** Makes every column of needs be computed anew. */
  private dropChanges(): void {
    this.droppedChanges += this.changeLog.length + 1;
    this.changeLog = [];
  }

  /**
   * Returns what a request needs of a node, by number of replicas and resources but custom ones:
   * {@link FITS}, {@link FITS_AFTER_LEAVING}, {@link NEVER_FITS}, or a bound of the evictions. Of
   * two needs, the smaller one may have the better victims.
   * @param priority - Only reservations of lower priority may be evicted. The bound may include
   *   higher priorities of the same band, so that it may be too low, never too high.
   */
  need(index: number, { fixed: dimensions, amounts }: Demand, priority: number): number {
    const { free, leaving, held, bands, shortages } = this;
    const at = index * DIMENSIONS;
    const length = dimensions.length;
    let isShort = false;
    let isShortNow = false;
    for (let each = 0; each < length; each += 1) {
      const dimension = dimensions[each] ?? 0;
      const shortage = (amounts[dimension] ?? 0) - (free[at + dimension] ?? 0);
      shortages[each] = shortage;
      if (shortage > 0) isShort = true;
      else if (shortage + (leaving[at + dimension] ?? 0) > 0) isShortNow = true;
    }
    if (!isShort) return isShortNow ? FITS_AFTER_LEAVING : FITS;
    if (priority === 0) return NEVER_FITS;
    const atBands = at * bands.count;
    let low = 0;
    let high = bands.of(priority - 1);
    // The sums grow with the bands: the first band that suffices is found by halving.
    if (!this.isEnough(atBands + high * DIMENSIONS, dimensions)) return NEVER_FITS;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.isEnough(atBands + middle * DIMENSIONS, dimensions)) high = middle;
      else low = middle + 1;
    }
    const victims = this.countAtLeast(atBands + low * DIMENSIONS, low, dimensions, held);
    return toNeed({ priority: bands.lowestPriorityOf(low), victims });
  }

  /**
   * Returns true when a node that passes has the resources of a request now, but for custom ones.
   * Faster than {@link need} for every node.
   * @param passes - 1 for each node to consider, by index.
   */
  hasFit(passes: Uint8Array, { fixed: dimensions, amounts }: Demand): boolean {
    const { free, leaving, ids } = this;
    const length = dimensions.length;
    for (let index = 0; index < ids.length; index += 1) {
      if (passes[index] !== 1 || ids[index] === undefined) continue;
      const at = index * DIMENSIONS;
      let each = 0;
      for (; each < length; each += 1) {
        const dimension = dimensions[each] ?? 0;
        const left = (free[at + dimension] ?? 0) - (leaving[at + dimension] ?? 0);
        if ((amounts[dimension] ?? 0) > left) break;
      }
      if (each === length) return true;
    }
    return false;
  }

  /**
   * Lists the nodes on which evictions of the lowest possible priorities make room for a request, by
   * resources and number of replicas but custom ones. On no other node is a lower priority enough.
   * @param passes - 1 for each node to consider, by index.
   * @param priority - As in {@link need}.
   * @returns Undefined when no eviction makes room on any of the nodes.
   */
  listCheapest(passes: Uint8Array, demand: Demand, priority: number): CheapestNodes | undefined {
    const { bands, reach, ids } = this;
    const levels = priority === 0 ? 0 : bands.of(priority - 1) + 1;
    const isPossible = (index: number): boolean => passes[index] === 1 && ids[index] !== undefined;
    const level = reach.findLowestLevel(ids.length, isPossible, demand, levels);
    if (level === undefined) return undefined;
    return {
      indexes: reach.listAt(level, ids.length, isPossible, demand),
      nextPriority: level < bands.count ? bands.lowestPriorityOf(level) : Infinity,
    };
  }

  /** Returns true when the reservations up to a band hold what {@link need} found to be short. */
  private isEnough(atBand: number, dimensions: readonly number[]): boolean {
    const { held, shortages } = this;
    for (let each = 0; each < dimensions.length; each += 1)
      if ((shortages[each] ?? 0) > (held[atBand + (dimensions[each] ?? 0)] ?? 0)) return false;
    return true;
  }

  /** Returns the fewest reservations of a band that suffice with all reservations of lower bands. */
  private countAtLeast(
    atBand: number,
    band: number,
    dimensions: readonly number[],
    held: Float64Array,
  ): number {
    const { largest, shortages } = this;
    let most = 1;
    for (let each = 0; each < dimensions.length; each += 1) {
      const dimension = dimensions[each] ?? 0;
      const below = band === 0 ? 0 : (held[atBand - DIMENSIONS + dimension] ?? 0);
      const missing = (shortages[each] ?? 0) - below;
      const atLargest = (atBand + dimension) * LARGEST;
      let count = 1;
      while (count <= LARGEST && missing > (largest[atLargest + count - 1] ?? 0)) count += 1;
      most = Math.max(most, count);
    }
    return most;
  }

  private assignIndex(nodeId: NodeId): void {
    const isKnown = this.source.node(nodeId) !== undefined;
    const index = this.indexOf.get(nodeId);
    if (index !== undefined) this.changeLog.push(index);
    if (isKnown === (index !== undefined)) return;
    this.ranks = undefined;
    if (index !== undefined) {
      this.indexOf.delete(nodeId);
      this.ids[index] = undefined;
      this.freeIndexes.push(index);
      return;
    }
    const next = this.freeIndexes.pop() ?? this.ids.length;
    this.indexOf.set(nodeId, next);
    this.ids[next] = nodeId;
    this.changeLog.push(next);
  }

  private allocate(): void {
    this.capacity = Math.max(16, this.capacity);
    while (this.capacity < this.ids.length) this.capacity *= 2;
    const amounts = this.capacity * DIMENSIONS;
    this.free = new Float64Array(amounts);
    this.leaving = new Float64Array(amounts);
    this.held = new Float64Array(amounts * this.bands.count);
    this.largest = new Float64Array(amounts * this.bands.count * LARGEST);
    this.reach = new ReachColumns(this.capacity, this.bands.count);
  }

  /** @returns The index of the node; undefined for an unknown node. */
  private sum(nodeId: NodeId, reservations: Iterable<HeldReservation>): number | undefined {
    const index = this.indexOf.get(nodeId);
    const node = this.source.node(nodeId);
    if (index === undefined || node === undefined) return undefined;
    const { free, leaving, held, largest, bands } = this;
    const at = index * DIMENSIONS;
    const atBands = at * bands.count;
    const endOfBands = atBands + bands.count * DIMENSIONS;
    this.reservations[index] = undefined;
    this.zoneAt[index] = this.numberOfZone(node.zoneKey);
    for (const [dimension, amount] of toAmounts(node.allocatable).entries())
      free[at + dimension] = amount;
    free[at + REPLICA_DIMENSION] = node.maxReplicas;
    leaving.fill(0, at, at + DIMENSIONS);
    held.fill(0, atBands, endOfBands);
    largest.fill(0, atBands * LARGEST, endOfBands * LARGEST);
    const occupied: number[] = [];
    for (const reservation of reservations) {
      const atBand = atBands + bands.of(reservation.priority) * DIMENSIONS;
      if (!occupied.includes(atBand)) occupied.push(atBand);
      for (let dimension = 0; dimension < DIMENSIONS; dimension += 1) {
        const amount = amountOf(reservation.resources, dimension);
        if (reservation.leaving) {
          leaving[at + dimension] = (leaving[at + dimension] ?? 0) + amount;
          continue;
        }
        free[at + dimension] = (free[at + dimension] ?? 0) - amount;
        held[atBand + dimension] = (held[atBand + dimension] ?? 0) + amount;
        insertLargest(largest, (atBand + dimension) * LARGEST, amount);
      }
    }
    for (let each = atBands + DIMENSIONS; each < endOfBands; each += 1)
      held[each] = (held[each] ?? 0) + (held[each - DIMENSIONS] ?? 0);
    for (const atBand of occupied)
      for (let each = atBand * LARGEST; each < (atBand + DIMENSIONS) * LARGEST; each += 1)
        if (each % LARGEST > 0) largest[each] = (largest[each] ?? 0) + (largest[each - 1] ?? 0);
    return index;
  }

  private numberOfZone(key: string): number {
    const known = this.zones.get(key);
    if (known !== undefined) return known;
    this.zones.set(key, this.zones.size);
    return this.zones.size - 1;
  }
}

/** Inserts an amount into the descending list of the {@link LARGEST} largest ones. */
function insertLargest(largest: Float64Array, at: number, amount: number): void {
  let next = amount;
  for (let each = at; each < at + LARGEST && next > 0; each += 1) {
    const current = largest[each] ?? 0;
    if (next <= current) continue;
    largest[each] = next;
    next = current;
  }
}
