import type { NodeId } from '@cloudless/base';
import { NO_CUSTOM } from '../input/custom-resources.js';
import type { IndexedNode } from '../input/node.js';
import { NO_RESOURCES, subtractResources, type Resources } from '../input/resources.js';
import { compareText } from '../order.js';
import { computeImbalance } from '../scoring/score.js';
import { CustomColumns } from './custom-columns.js';
import { NodeClasses, NodeKinds, NodeSizes, NO_CLASS } from './node-classes.js';
import { MAX_INDEXED_SIZES, UseIndex } from './use-index.js';
import type { Slot } from './value-column.js';
import { ValueColumns } from './value-columns.js';

const FIRST_CAPACITY = 16;
/** Classes without a node that are kept, besides one for each node. */
const MAX_UNUSED_CLASSES = 256;

/** How a change of a node concerns what was prepared before. */
export type NodeChange =
  /** Nothing that decides placements differs. */
  | 'none'
  /** Only what the table and the classes hold about the one node differs. */
  | 'node'
  /** Nodes came or went, or a node changed its zone or another domain in use. */
  | 'domains';

/**
 * All nodes as a structure of arrays, one entry per slot. A node id has a slot from the first
 * mention of the node, in `upsertNode` or in a reservation, until neither is left.
 *
 * Amounts are whole numbers below 2^53 in 64-bit floats, so sums and comparisons are exact. The
 * arrays are replaced when the table grows: read them anew in each call.
 */
export class NodeTable {
  /** Number of slots in use or free for reuse; all arrays have at least this length. */
  size = 0;
  readonly ids: NodeId[] = [];
  /** The node of each slot; undefined for a slot that is known only from reservations. */
  readonly records: (IndexedNode | undefined)[] = [];
  /**
   * The next three grow at the end only, so that copies of a table share them. They are replaced
   * together when most of their entries belong to no node any more.
   */
  classes: NodeClasses;
  sizes: NodeSizes;
  kinds: NodeKinds;
  columns = new ValueColumns(this.records, FIRST_CAPACITY);
  /** Amounts of custom resources, for the few requests that ask for some. */
  readonly custom = new CustomColumns(this.records, FIRST_CAPACITY);

  /** Class of the node, {@link NO_CLASS} without a node. */
  classOf = new Int32Array(FIRST_CAPACITY);
  /** Index into `sizes.capacities`. */
  sizeOf = new Int32Array(FIRST_CAPACITY);
  /** Index into `kinds`. */
  kindOf = new Int32Array(FIRST_CAPACITY);
  /** Replicas that the node may still take; negative on a node that has shrunk. */
  replicasLeft = new Int32Array(FIRST_CAPACITY);
  /** Number of reservations, including those of leaving replicas. */
  replicas = new Int32Array(FIRST_CAPACITY);
  /** Allocatable minus allocated; negative on a node that has shrunk. */
  freeCpu = new Float64Array(FIRST_CAPACITY);
  freeMemory = new Float64Array(FIRST_CAPACITY);
  freeStorage = new Float64Array(FIRST_CAPACITY);
  freeBandwidth = new Float64Array(FIRST_CAPACITY);
  freeGpus = new Float64Array(FIRST_CAPACITY);
  /** System reservation plus allocated. */
  usedCpu = new Float64Array(FIRST_CAPACITY);
  usedMemory = new Float64Array(FIRST_CAPACITY);
  /** The whole machine. */
  capacityCpu = new Float64Array(FIRST_CAPACITY);
  capacityMemory = new Float64Array(FIRST_CAPACITY);
  /** Difference between the used shares of CPU and memory. */
  imbalance = new Float64Array(FIRST_CAPACITY);

  /** Counts the changes of nodes, without those of reservations. */
  nodeRevision = 0;

  private readonly slots = new Map<NodeId, Slot>();
  private readonly freeSlots: Slot[] = [];
  private ranks: Int32Array | undefined;
  /** Made for the first scan that needs the index. */
  private use: UseIndex | undefined;
  private nodeCount = 0;

  /** @param original - The table that a new one is a copy of. */
  constructor(original?: NodeTable) {
    this.classes = original?.classes ?? new NodeClasses();
    this.sizes = original?.sizes ?? new NodeSizes();
    this.kinds = original?.kinds ?? new NodeKinds();
  }

  /** Number of nodes, without slots that are known only from reservations. */
  get count(): number {
    return this.nodeCount;
  }

  /** Length of the arrays. */
  get capacity(): number {
    return this.classOf.length;
  }

  /** Returns the slot of a node id; undefined when neither a node nor a reservation names the id. */
  find(nodeId: NodeId): Slot | undefined {
    return this.slots.get(nodeId);
  }

  /** Returns the slot of a node id, and assigns one to a new id. */
  slotFor(nodeId: NodeId): Slot {
    const known = this.slots.get(nodeId);
    if (known !== undefined) return known;
    const slot = this.freeSlots.pop() ?? this.appendSlot();
    this.slots.set(nodeId, slot);
    this.ids[slot] = nodeId;
    this.records[slot] = undefined;
    this.ranks = undefined;
    return slot;
  }

  /** Stores the node of a slot, or removes the node; reservations of the slot stay. */
  set(slot: Slot, node: IndexedNode | undefined): NodeChange {
    const before = this.records[slot];
    const allocated = this.allocatedOn(slot);
    this.records[slot] = node;
    const [classId, sizeId] = [this.classOf[slot], this.sizeOf[slot]];
    this.classify(slot);
    const isSame = this.classOf[slot] === classId && this.sizeOf[slot] === sizeId;
    if (this.classes.examples.length > MAX_UNUSED_CLASSES + 2 * this.nodeCount)
      this.compactClasses();
    this.writeAmounts(slot, node, allocated);
    this.custom.refresh(slot);
    const isInOtherDomain = this.columns.set(slot, node);
    if (before !== undefined && node !== undefined && !isInOtherDomain) {
      if (isSame && haveEqualLabels(before, node) && haveEqualAmounts(before, node)) return 'none';
      this.nodeRevision += 1;
      return 'node';
    }
    this.nodeRevision += 1;
    if (before === undefined && node !== undefined) this.nodeCount += 1;
    if (before !== undefined && node === undefined) this.nodeCount -= 1;
    return 'domains';
  }

  /** Forgets a slot without a node and without reservations. */
  forget(slot: Slot): void {
    const id = this.ids[slot];
    if (id === undefined || this.records[slot] !== undefined || this.replicas[slot] !== 0) return;
    this.slots.delete(id);
    this.freeSlots.push(slot);
    this.ranks = undefined;
  }

  /** Adds (1) or subtracts (-1) the resources of one replica. */
  book(slot: Slot, amounts: Resources, change: 1 | -1): void {
    const { freeCpu, freeMemory, usedCpu, usedMemory, replicas, replicasLeft } = this;
    const cpu = change * amounts.cpuMillis;
    const memory = change * amounts.memoryBytes;
    freeCpu[slot] = (freeCpu[slot] ?? 0) - cpu;
    freeMemory[slot] = (freeMemory[slot] ?? 0) - memory;
    if (asksForMore(amounts)) this.bookMore(slot, amounts, change);
    usedCpu[slot] = (usedCpu[slot] ?? 0) + cpu;
    usedMemory[slot] = (usedMemory[slot] ?? 0) + memory;
    replicas[slot] = (replicas[slot] ?? 0) + change;
    replicasLeft[slot] = (replicasLeft[slot] ?? 0) - change;
    // An empty node has exactly what it has, also after sums beyond 2^53, which are rounded.
    if (replicas[slot] === 0) {
      this.custom.clearBooked(slot);
      this.writeAmounts(slot, this.records[slot], NO_RESOURCES);
    } else this.refreshShares(slot);
  }

  private bookMore(slot: Slot, amounts: Resources, change: 1 | -1): void {
    const { freeStorage, freeBandwidth, freeGpus } = this;
    freeStorage[slot] = (freeStorage[slot] ?? 0) - change * amounts.storageBytes;
    freeBandwidth[slot] = (freeBandwidth[slot] ?? 0) - change * amounts.bandwidthBps;
    freeGpus[slot] = (freeGpus[slot] ?? 0) - change * amounts.gpus;
    this.custom.book(slot, amounts.custom, change);
  }

  /** Resources that reservations hold on a slot, with or without a node. */
  allocatedOn(slot: Slot): Resources {
    const allocatable = this.records[slot]?.allocatable ?? NO_RESOURCES;
    return {
      cpuMillis: allocatable.cpuMillis - (this.freeCpu[slot] ?? 0),
      memoryBytes: allocatable.memoryBytes - (this.freeMemory[slot] ?? 0),
      storageBytes: allocatable.storageBytes - (this.freeStorage[slot] ?? 0),
      bandwidthBps: allocatable.bandwidthBps - (this.freeBandwidth[slot] ?? 0),
      gpus: allocatable.gpus - (this.freeGpus[slot] ?? 0),
      custom: this.custom.bookedOn(slot),
    };
  }

  /** Position of each slot's node id in the order of all ids: the last criterion of the ranking. */
  get rankOf(): Int32Array {
    this.ranks ??= this.computeRanks();
    return this.ranks;
  }

  /** The nodes by the shares in use; undefined when the machines have too many sizes. */
  get byUse(): UseIndex | undefined {
    if (this.sizes.capacities.length > MAX_INDEXED_SIZES) this.use = undefined;
    else if (this.use === undefined) {
      this.use = new UseIndex(this.capacity);
      for (let slot = 0; slot < this.size; slot += 1) this.indexUse(slot, this.use);
    }
    return this.use;
  }

  /** Lists the slots with a node, in no particular order. */
  listSlots(): Slot[] {
    const listed: Slot[] = [];
    for (let slot = 0; slot < this.size; slot += 1)
      if (this.classOf[slot] !== NO_CLASS) listed.push(slot);
    return listed;
  }

  /** Forgets the columns of labels and topologies, which are made again on their next use. */
  resetColumns(): void {
    this.columns = new ValueColumns(this.records, this.capacity);
  }

  /** Returns an independent copy, without the columns of labels and topologies. */
  clone(): NodeTable {
    const copy = new NodeTable(this);
    for (const [id, slot] of this.slots) copy.slots.set(id, slot);
    copy.ids.push(...this.ids);
    copy.freeSlots.push(...this.freeSlots);
    copy.size = this.size;
    copy.nodeCount = this.nodeCount;
    for (const name of COUNTS) copy[name] = copyOf(this[name]);
    for (const name of AMOUNTS) copy[name] = copyOf(this[name]);
    for (const record of this.records) copy.records.push(record);
    copy.resetColumns();
    copy.custom.grow(copy.capacity);
    this.custom.copyTo(copy.custom);
    return copy;
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    return (
      this.capacity * (4 * COUNTS.length + 8 * AMOUNTS.length) +
      this.columns.bytes +
      this.custom.bytes +
      (this.use?.bytes ?? 0)
    );
  }

  /**
   * Forgets the classes and sizes of earlier states of nodes: without that, a cluster whose taints,
   * conditions or reliabilities change all the time would compare more and more kinds in each scan.
   */
  private compactClasses(): void {
    this.classes = new NodeClasses();
    this.sizes = new NodeSizes();
    this.kinds = new NodeKinds();
    this.use = undefined;
    for (let slot = 0; slot < this.size; slot += 1) this.classify(slot);
  }

  /** Stores the class, size and kind of the node of a slot. */
  private classify(slot: Slot): void {
    const node = this.records[slot];
    const classId = node === undefined ? NO_CLASS : this.classes.intern(node);
    const sizeId = node === undefined ? 0 : this.sizes.intern(node);
    this.classOf[slot] = classId;
    this.sizeOf[slot] = sizeId;
    this.kindOf[slot] = this.kinds.intern(classId, sizeId, node?.capacity ?? NO_RESOURCES);
  }

  private appendSlot(): Slot {
    if (this.size === this.capacity) this.grow(this.capacity * 2);
    this.size += 1;
    return this.size - 1;
  }

  private grow(capacity: number): void {
    for (const name of COUNTS) this[name] = copyOf(this[name], capacity);
    for (const name of AMOUNTS) this[name] = copyOf(this[name], capacity);
    this.columns.grow(capacity);
    this.custom.grow(capacity);
    this.use?.grow(capacity);
  }

  private writeAmounts(slot: Slot, node: IndexedNode | undefined, allocated: Resources): void {
    const free = subtractResources(node?.allocatable ?? NO_RESOURCES, allocated);
    this.freeCpu[slot] = free.cpuMillis;
    this.freeMemory[slot] = free.memoryBytes;
    this.freeStorage[slot] = free.storageBytes;
    this.freeBandwidth[slot] = free.bandwidthBps;
    this.freeGpus[slot] = free.gpus;
    const { systemReserved = NO_RESOURCES, capacity = NO_RESOURCES } = node ?? {};
    this.usedCpu[slot] = systemReserved.cpuMillis + allocated.cpuMillis;
    this.usedMemory[slot] = systemReserved.memoryBytes + allocated.memoryBytes;
    this.capacityCpu[slot] = capacity.cpuMillis;
    this.capacityMemory[slot] = capacity.memoryBytes;
    this.replicasLeft[slot] = (node?.maxReplicas ?? 0) - (this.replicas[slot] ?? 0);
    this.refreshShares(slot);
  }

  private refreshShares(slot: Slot): void {
    this.imbalance[slot] = computeImbalance(
      this.usedCpu[slot] ?? 0,
      this.usedMemory[slot] ?? 0,
      this.capacityCpu[slot] ?? 0,
      this.capacityMemory[slot] ?? 0,
    );
    if (this.use !== undefined) this.indexUse(slot, this.use);
  }

  private indexUse(slot: Slot, index: UseIndex): void {
    if (this.classOf[slot] === NO_CLASS) return index.remove(slot);
    const kind = this.kindOf[slot] ?? 0;
    index.set(
      slot,
      this.sizeOf[slot] ?? 0,
      (this.usedCpu[slot] ?? 0) * (this.kinds.cpuShares[kind] ?? 0),
      (this.usedMemory[slot] ?? 0) * (this.kinds.memoryShares[kind] ?? 0),
      this.replicas[slot] === 0,
    );
  }

  private computeRanks(): Int32Array {
    const ranks = new Int32Array(this.capacity);
    const sorted = Array.from(this.slots).sort(([a], [b]) => compareText(a, b));
    sorted.forEach(([, slot], rank) => (ranks[slot] = rank));
    return ranks;
  }
}

/** Returns true when anything but CPU and memory is asked for. */
function asksForMore({ storageBytes, bandwidthBps, gpus, custom }: Resources): boolean {
  return storageBytes !== 0 || bandwidthBps !== 0 || gpus !== 0 || custom !== NO_CUSTOM;
}

/** Names of the arrays of counts and ids, with one entry per slot. */
const COUNTS = ['classOf', 'sizeOf', 'kindOf', 'replicasLeft', 'replicas'] as const;

/** Names of the arrays of amounts, with one entry per slot. */
const AMOUNTS = [
  'freeCpu',
  'freeMemory',
  'freeStorage',
  'freeBandwidth',
  'freeGpus',
  'usedCpu',
  'usedMemory',
  'capacityCpu',
  'capacityMemory',
  'imbalance',
] as const;

/** Copies an array, with room for at least `capacity` entries. */
export function copyOf<Column extends Int32Array | Float64Array | Uint8Array>(
  column: Column,
  capacity: number = column.length,
): Column {
  const copy = new (column.constructor as new (length: number) => Column)(capacity);
  copy.set(column);
  return copy;
}

/** Compares the nodes and not the columns, which exist only for the labels of recent requests. */
function haveEqualLabels(a: IndexedNode, b: IndexedNode): boolean {
  if (a.labels.size !== b.labels.size) return false;
  for (const [key, value] of a.labels) if (b.labels.get(key) !== value) return false;
  return true;
}

function haveEqualAmounts(a: IndexedNode, b: IndexedNode): boolean {
  const [mine, other] = [a, b].map(({ capacity, allocatable, systemReserved, maxReplicas }) =>
    JSON.stringify([capacity, allocatable, systemReserved, maxReplicas]),
  );
  return mine === other;
}
