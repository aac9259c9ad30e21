import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import type { NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import type { SchedulerHostPort } from '../input/host-ports.js';
import type { HeldReservation, Reservation, ReservationTemplate } from '../input/reservation.js';
import { NO_RESOURCES, type Resources } from '../input/resources.js';
import { isClaimOf, toClaim, type Claim } from './claim.js';
import { EntryColumns, NO_ENTRY, type Entry } from './entry-columns.js';
import { PortHolders } from './port-holders.js';
import {
  LedgerGroup,
  type GroupFields,
  type GroupedWorkload,
  type ReplicaCount,
  type ReplicaGroup,
} from './replica-group.js';
import { hashReplicaId, ReplicaIndex } from './replica-index.js';
import { TermIndex } from './term-index.js';
import { WorkloadCounts } from './workload-counts.js';

/** Common part of the reservations of equal replicas while they are added. */
export interface ReservationBatch {
  readonly group: LedgerGroup;
  readonly claim: Claim;
  readonly leaving: boolean;
}

/** Reservations of one node. */
export interface NodeBookings {
  readonly allocated: Resources;
  readonly replicas: number;
}

const NO_BOOKINGS: NodeBookings = { allocated: NO_RESOURCES, replicas: 0 };

/**
 * All reservations, by node and by group of equal replicas. A reservation may be added before its
 * node and outlive the node, so the order of changes does not matter. Every change is carried into
 * the amounts of the node table and into the counts that requests have asked for.
 */
export class Ledger {
  readonly ports: PortHolders;
  readonly terms: TermIndex;
  private readonly replicas: ReplicaIndex;
  private readonly groups: (LedgerGroup | undefined)[] = [];
  private readonly freeGroups: number[] = [];
  private readonly workloads = new Map<WorkloadId, GroupedWorkload>();

  constructor(
    private readonly table: NodeTable,
    private readonly entries = new EntryColumns(),
    ports = new PortHolders(),
    replicas = new ReplicaIndex(entries.replicaIds),
  ) {
    this.ports = ports;
    this.replicas = replicas;
    this.terms = new TermIndex(table, entries, () => this.listGroups());
  }

  /** Number of reservations. */
  get count(): number {
    return this.replicas.size;
  }

  /**
   * Adds the reservation of a replica without one.
   * @returns The slot of the node.
   */
  add(reservation: Reservation): Slot {
    const batch = this.startBatch(reservation);
    const slot = this.addToBatch(batch, reservation.replicaId, reservation.nodeId);
    this.dropGroup(batch.group);
    return slot;
  }

  /** Prepares reservations of equal replicas. The caller ends the batch with {@link dropGroup}. */
  startBatch(template: ReservationTemplate): ReservationBatch {
    const group = this.holdGroup(template);
    const claim = isClaimOf(group.claim, template) ? group.claim : toClaim(template);
    group.claim = claim;
    return { group, claim, leaving: template.leaving ?? false };
  }

  /**
   * Adds a reservation of a batch, for a replica without one.
   * @param hash - Given by callers that have computed it before.
   * @returns The slot of the node.
   */
  addToBatch(
    { group, claim, leaving }: ReservationBatch,
    replicaId: ReplicaId,
    nodeId: NodeId,
    hash = hashReplicaId(replicaId),
  ): Slot {
    group.holders += 1;
    const slot = this.table.slotFor(nodeId);
    this.replicas.add(hash, this.addEntry(replicaId, slot, group, claim, leaving));
    return slot;
  }

  /**
   * Removes the reservation of a replica.
   * @param hash - Given by callers that have computed it before.
   * @returns The slot of the node; undefined when the replica has no reservation.
   */
  remove(replicaId: ReplicaId, hash = hashReplicaId(replicaId)): Slot | undefined {
    const entry = this.replicas.find(replicaId, hash);
    if (entry === NO_ENTRY) return undefined;
    this.replicas.remove(replicaId, hash);
    const slot = this.entries.slotOf[entry] ?? 0;
    this.removeEntry(entry);
    this.table.forget(slot);
    return slot;
  }

  /** Returns the slot of the node of a reservation; undefined without a reservation. */
  slotOf(replicaId: ReplicaId): Slot | undefined {
    const entry = this.replicas.find(replicaId, hashReplicaId(replicaId));
    return entry === NO_ENTRY ? undefined : this.entries.slotOf[entry];
  }

  /** Calls `read` while the reservations of some replicas are away, and puts them back. */
  without<Result>(replicaIds: Iterable<ReplicaId>, read: () => Result): Result {
    const away = Array.from(replicaIds).flatMap((replicaId) => {
      const hash = hashReplicaId(replicaId);
      const entry = this.replicas.find(replicaId, hash);
      const group = this.groups[this.entries.groupOf[entry] ?? 0];
      const claim = this.entries.claims[entry];
      if (entry === NO_ENTRY || group === undefined || claim === undefined) return [];
      const slot = this.entries.slotOf[entry] ?? 0;
      const leaving = this.entries.leaving[entry] === 1;
      group.holders += 1; // the group stays while its reservation is away
      this.replicas.remove(replicaId, hash);
      this.removeEntry(entry);
      return [{ replicaId, hash, slot, group, claim, leaving }];
    });
    try {
      return read();
    } finally {
      for (const { replicaId, hash, slot, group, claim, leaving } of away)
        this.replicas.add(hash, this.addEntry(replicaId, slot, group, claim, leaving));
    }
  }

  /**
   * Adds a placement that is tried to all amounts and counts, as if it had been reserved, or takes
   * it back. The group must be held. Lists of reservations show it only in {@link showTried}.
   */
  adjustTried(slot: Slot, group: LedgerGroup, claim: Claim, change: 1 | -1): void {
    this.apply(slot, group, claim, false, change);
  }

  /** Calls `read` while the placements that are tried are listed among the reservations. */
  showTried<Result>(
    slots: readonly Slot[],
    group: LedgerGroup,
    claim: Claim,
    read: () => Result,
  ): Result {
    const shown = slots.map((slot) => this.entries.add(undefined, slot, group, claim, false));
    try {
      return read();
    } finally {
      for (const entry of shown.reverse()) this.entries.remove(entry, group);
    }
  }

  /** Returns the group of the fields, and keeps the group until {@link dropGroup}. */
  holdGroup(fields: GroupFields): LedgerGroup {
    let workload = this.workloads.get(fields.workloadId);
    if (workload === undefined) {
      workload = { id: fields.workloadId, groups: [], counts: undefined };
      this.workloads.set(fields.workloadId, workload);
    }
    const known = workload.groups.find((group) => group.isNamedBy(fields));
    const group = known ?? this.addGroup(workload, fields);
    group.holders += 1;
    return group;
  }

  /** Ends one {@link holdGroup}. */
  dropGroup(group: LedgerGroup): void {
    group.holders -= 1;
    if (group.holders > 0) return;
    this.terms.removeGroup(group);
    const { workload } = group;
    workload.groups.splice(workload.groups.indexOf(group), 1);
    if (workload.groups.length === 0) this.workloads.delete(workload.id);
    this.groups[group.index] = undefined;
    this.freeGroups.push(group.index);
  }

  /** Returns the counts of a workload, which follow all later changes; undefined without a group. */
  countsOf(workloadId: WorkloadId): WorkloadCounts | undefined {
    const workload = this.workloads.get(workloadId);
    if (workload === undefined) return undefined;
    workload.counts ??= this.countReplicas(workload);
    return workload.counts;
  }

  /** Stops following the counts of a workload. */
  forgetCounts(workloadId: WorkloadId): void {
    const workload = this.workloads.get(workloadId);
    if (workload !== undefined) workload.counts = undefined;
  }

  /** Counts everything anew on the next use, after nodes have changed their domains. */
  resetCounts(): void {
    for (const workload of this.workloads.values()) workload.counts = undefined;
    this.terms.rebuild();
  }

  /** Returns the reserved resources and the number of reservations of a node, known or not. */
  bookingsOn(nodeId: NodeId): NodeBookings {
    const slot = this.table.find(nodeId);
    if (slot === undefined) return NO_BOOKINGS;
    return { allocated: this.table.allocatedOn(slot), replicas: this.table.replicas[slot] ?? 0 };
  }

  /** Lists the reservations of a node, known or not, in no particular order. */
  reservationsOn(nodeId: NodeId): HeldReservation[] {
    const slot = this.table.find(nodeId);
    if (slot === undefined) return [];
    const held: HeldReservation[] = [];
    for (const entry of this.entries.onNode(slot)) {
      const group = this.groups[this.entries.groupOf[entry] ?? 0];
      const replicaId = this.entries.replicaIds[entry];
      const claim = this.entries.claims[entry];
      if (replicaId === undefined || group === undefined || claim === undefined) continue;
      const { namespace, labels, workload } = group;
      const { resources, hostPorts, priority } = claim;
      const leaving = this.entries.leaving[entry] === 1;
      const workloadId = workload.id;
      // One object literal, without spreads: this runs for every replica of a changed node.
      held.push({
        replicaId,
        nodeId,
        workloadId,
        namespace,
        labels,
        resources,
        hostPorts,
        priority,
        leaving,
      });
    }
    return held;
  }

  /** Calls `visit` for each reservation of a slot, without creating an object for each. */
  forEachClaim(slot: Slot, visit: (claim: Claim, isLeaving: boolean) => void): void {
    for (const entry of this.entries.onNode(slot)) {
      const claim = this.entries.claims[entry];
      if (claim !== undefined) visit(claim, this.entries.leaving[entry] === 1);
    }
  }

  /** Returns the first of `ports` that a replica, leaving or not, holds on the node. */
  findHeldPort(nodeId: NodeId, ports: readonly SchedulerHostPort[]): SchedulerHostPort | undefined {
    const slot = this.table.find(nodeId);
    return slot === undefined ? undefined : this.ports.findHeld(slot, ports);
  }

  /** Lists the groups that have replicas, for explanations. */
  *allGroups(): Iterable<ReplicaGroup> {
    for (const group of this.listGroups()) {
      if (group.first < 0) continue;
      const { namespace, labels, repels, workload } = group;
      const countPerNode = (): ReadonlyMap<NodeId, ReplicaCount> => this.countPerNode(group);
      yield {
        ...{ workloadId: workload.id, namespace, labels, repels },
        get perNode() {
          return countPerNode();
        },
      };
    }
  }

  /** Counts the replicas of a workload that are not leaving, by node, over all groups. */
  countStaying(workloadId: WorkloadId): Map<NodeId, number> {
    const staying = new Map<NodeId, number>();
    for (const group of this.workloads.get(workloadId)?.groups ?? [])
      for (const [nodeId, count] of this.countPerNode(group))
        staying.set(nodeId, (staying.get(nodeId) ?? 0) + count.staying);
    return staying;
  }

  /** Returns an independent copy over a copy of the node table. */
  clone(table: NodeTable): Ledger {
    const entries = this.entries.clone();
    const replicas = this.replicas.clone(entries.replicaIds);
    const copy = new Ledger(table, entries, this.ports.clone(), replicas);
    copy.freeGroups.push(...this.freeGroups);
    copy.groups.length = this.groups.length;
    for (const { id, groups } of this.workloads.values()) {
      const workload: GroupedWorkload = { id, groups: [], counts: undefined };
      for (const group of groups) {
        const twin = group.copyFor(workload, copy.entries.inGroup(group).length);
        if (twin.holders === 0) copy.freeGroups.push(twin.index);
        else workload.groups.push((copy.groups[twin.index] = twin));
      }
      if (workload.groups.length > 0) copy.workloads.set(id, workload);
    }
    copy.terms.rebuild();
    return copy;
  }

  /** Bytes of the reservations and of all counts, roughly. */
  get bytes(): number {
    let counts = 0;
    for (const workload of this.workloads.values()) counts += workload.counts?.bytes ?? 0;
    return this.entries.bytes + this.replicas.bytes + counts;
  }

  private addEntry(
    replicaId: ReplicaId | undefined,
    slot: Slot,
    group: LedgerGroup,
    claim: Claim,
    leaving: boolean,
  ): Entry {
    this.apply(slot, group, claim, leaving, 1);
    return this.entries.add(replicaId, slot, group, claim, leaving);
  }

  private removeEntry(entry: Entry): void {
    const group = this.groups[this.entries.groupOf[entry] ?? 0];
    const claim = this.entries.claims[entry];
    if (group === undefined || claim === undefined) return;
    const slot = this.entries.slotOf[entry] ?? 0;
    this.apply(slot, group, claim, this.entries.leaving[entry] === 1, -1);
    this.entries.remove(entry, group);
    this.dropGroup(group);
  }

  private apply(
    slot: Slot,
    group: LedgerGroup,
    claim: Claim,
    leaving: boolean,
    change: 1 | -1,
  ): void {
    this.table.book(slot, claim.resources, change);
    if (claim.hostPorts.length > 0) this.ports.adjust(slot, claim.hostPorts, change);
    if (!leaving) group.workload.counts?.adjust(slot, change);
    this.terms.adjust(group, slot, leaving, change);
  }

  private addGroup(workload: GroupedWorkload, fields: GroupFields): LedgerGroup {
    const index = this.freeGroups.pop() ?? this.groups.length;
    const group = new LedgerGroup(index, workload, fields);
    this.groups[index] = group;
    workload.groups.push(group);
    this.terms.addGroup(group);
    return group;
  }

  private *listGroups(): Iterable<LedgerGroup> {
    for (const group of this.groups) if (group !== undefined) yield group;
  }

  private countReplicas(workload: GroupedWorkload): WorkloadCounts {
    const counts = new WorkloadCounts(this.table.capacity, this.table.columns.rankedZones);
    for (const group of workload.groups)
      for (const entry of this.entries.inGroup(group))
        if (this.entries.leaving[entry] === 0) counts.adjust(this.entries.slotOf[entry] ?? 0, 1);
    return counts;
  }

  private countPerNode(group: LedgerGroup): ReadonlyMap<NodeId, ReplicaCount> {
    const perNode = new Map<NodeId, { staying: number; leaving: number }>();
    for (const entry of this.entries.inGroup(group)) {
      const nodeId = this.table.ids[this.entries.slotOf[entry] ?? 0];
      if (nodeId === undefined) continue;
      const count = perNode.get(nodeId) ?? { staying: 0, leaving: 0 };
      perNode.set(nodeId, count);
      if (this.entries.leaving[entry] === 1) count.leaving += 1;
      else count.staying += 1;
    }
    return perNode;
  }
}
