import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import { HeldPorts, sortPorts, type SchedulerHostPort } from '../input/host-ports.js';
import { toLabelMap, type LabelMap } from '../input/labels.js';
import { compareText } from '../order.js';
import type { WorkloadTerm } from '../input/request.js';
import { DEFAULT_PRIORITY, type HeldReservation, type Reservation } from '../input/reservation.js';
import {
  subtractResources,
  NO_RESOURCES,
  addResources,
  toResources,
  type Resources,
} from '../input/resources.js';

/** Reservations of one node. */
export interface NodeBookings {
  readonly allocated: Resources;
  readonly replicas: number;
}

/** Replicas with the same workload, labels and anti-affinity. */
export interface ReplicaGroup {
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  readonly labels: LabelMap;
  /**
   * Required anti-affinity terms, which exclude matching replicas from the domains of this group.
   */
  readonly repels: readonly WorkloadTerm[];
  /** Replica counts by node. Contains no entry for nodes without replicas of the group. */
  readonly perNode: ReadonlyMap<NodeId, ReplicaCount>;
}

/** Number of replicas of a group on a node. */
export interface ReplicaCount {
  readonly staying: number;
  readonly leaving: number;
}

/** Copy of the values needed to remove a reservation, in case the caller changes its object. */
interface Entry {
  readonly nodeId: NodeId;
  readonly leaving: boolean;
  readonly resources: Resources;
  readonly hostPorts: readonly SchedulerHostPort[];
  readonly priority: number;
  readonly group: MutableGroup;
}

interface MutableGroup extends ReplicaGroup {
  readonly key: string;
  readonly perNode: Map<NodeId, ReplicaCount>;
}

const NO_BOOKINGS: NodeBookings = { allocated: NO_RESOURCES, replicas: 0 };
const NO_REPLICAS: ReplicaCount = { staying: 0, leaving: 0 };

/**
 * All reservations, indexed by node and by group of equal replicas. Holds node ids instead of
 * nodes: a reservation may be added before its node and outlive the node, so the order of changes
 * does not matter.
 */
export class Ledger {
  private readonly entries = new Map<ReplicaId, Entry>();
  private readonly bookings = new Map<NodeId, NodeBookings>();
  private readonly replicasOf = new Map<NodeId, Set<ReplicaId>>();
  private ports = new HeldPorts();
  private readonly groups = new Map<string, MutableGroup>();
  private readonly groupsOf = new Map<WorkloadId, Set<MutableGroup>>();
  /** Number of groups that exclude other replicas from their domains. */
  repellingGroups = 0;

  /** Adds a reservation, or replaces the older reservation of the same replica. */
  add(reservation: Reservation): void {
    this.remove(reservation.replicaId);
    const { nodeId, leaving = false } = reservation;
    const entry: Entry = {
      nodeId,
      leaving,
      resources: toResources(reservation.resources),
      hostPorts: sortPorts(reservation.hostPorts),
      priority: reservation.priority ?? DEFAULT_PRIORITY,
      group: this.getOrCreateGroup(reservation),
    };
    this.entries.set(reservation.replicaId, entry);
    const onNode = this.replicasOf.get(nodeId) ?? new Set();
    this.replicasOf.set(nodeId, onNode.add(reservation.replicaId));
    const { allocated, replicas } = this.bookingsOn(nodeId);
    this.bookings.set(nodeId, {
      allocated: addResources(allocated, entry.resources),
      replicas: replicas + 1,
    });
    this.ports.adjust(nodeId, entry.hostPorts, 1);
    this.adjust(entry, 1);
  }

  /**
   * Removes the reservation of a replica.
   * @returns The node of the reservation; undefined when there is none.
   */
  remove(replicaId: ReplicaId): NodeId | undefined {
    const entry = this.entries.get(replicaId);
    if (entry === undefined) return undefined;
    this.entries.delete(replicaId);
    const onNode = this.replicasOf.get(entry.nodeId);
    onNode?.delete(replicaId);
    if (onNode?.size === 0) this.replicasOf.delete(entry.nodeId);
    const { allocated, replicas } = this.bookingsOn(entry.nodeId);
    if (replicas === 1) this.bookings.delete(entry.nodeId);
    else
      this.bookings.set(entry.nodeId, {
        allocated: subtractResources(allocated, entry.resources),
        replicas: replicas - 1,
      });
    this.ports.adjust(entry.nodeId, entry.hostPorts, -1);
    this.adjust(entry, -1);
    return entry.nodeId;
  }

  /** Returns the reserved resources and the number of reservations of a node, known or not. */
  bookingsOn(nodeId: NodeId): NodeBookings {
    return this.bookings.get(nodeId) ?? NO_BOOKINGS;
  }

  /** Lists the reservations of a node, known or not, in no particular order. */
  reservationsOn(nodeId: NodeId): HeldReservation[] {
    return Array.from(this.replicasOf.get(nodeId) ?? []).flatMap((replicaId) => {
      const entry = this.entries.get(replicaId);
      if (entry === undefined) return [];
      const { resources, hostPorts, leaving, priority, group } = entry;
      const { workloadId, namespace, labels } = group;
      const held = { replicaId, nodeId, workloadId, namespace, labels };
      return [{ ...held, resources, hostPorts, leaving, priority }];
    });
  }

  /** Returns the first of `ports` that a replica, leaving or not, holds on the node. */
  findHeldPort(nodeId: NodeId, ports: readonly SchedulerHostPort[]): SchedulerHostPort | undefined {
    return this.ports.findHeld(nodeId, ports);
  }

  allGroups(): Iterable<ReplicaGroup> {
    return this.groups.values();
  }

  /** Counts the replicas of a workload that are not leaving, by node, over all groups. */
  countStaying(workloadId: WorkloadId): Map<NodeId, number> {
    const staying = new Map<NodeId, number>();
    for (const group of this.groupsOf.get(workloadId) ?? []) {
      for (const [nodeId, count] of group.perNode)
        staying.set(nodeId, (staying.get(nodeId) ?? 0) + count.staying);
    }
    return staying;
  }

  /** Returns an independent copy. */
  clone(): Ledger {
    const copy = new Ledger();
    for (const [nodeId, booked] of this.bookings) copy.bookings.set(nodeId, booked);
    for (const [nodeId, replicas] of this.replicasOf)
      copy.replicasOf.set(nodeId, new Set(replicas));
    copy.ports = this.ports.clone();
    for (const group of this.groups.values())
      copy.addGroup({ ...group, perNode: new Map(group.perNode) });
    for (const [replicaId, entry] of this.entries) {
      copy.entries.set(replicaId, {
        ...entry,
        group: copy.groups.get(entry.group.key) ?? entry.group,
      });
    }
    return copy;
  }

  private adjust({ nodeId, leaving, group }: Entry, change: 1 | -1): void {
    const count = group.perNode.get(nodeId) ?? NO_REPLICAS;
    const next = leaving
      ? { ...count, leaving: count.leaving + change }
      : { ...count, staying: count.staying + change };
    if (next.staying + next.leaving > 0) group.perNode.set(nodeId, next);
    else group.perNode.delete(nodeId);
    if (group.perNode.size === 0) this.removeGroup(group);
  }

  private getOrCreateGroup({
    workloadId,
    namespace,
    labels = {},
    workloadAntiAffinity = [],
  }: Reservation): MutableGroup {
    const repels = workloadAntiAffinity.filter((term) => term.mode === 'required');
    const sortedLabels = Object.entries(labels).sort(([a], [b]) => compareText(a, b));
    const key = JSON.stringify([workloadId, namespace, sortedLabels, repels]);
    return (
      this.groups.get(key) ??
      this.addGroup({
        key,
        workloadId,
        namespace,
        labels: toLabelMap(labels),
        repels,
        perNode: new Map(),
      })
    );
  }

  private addGroup(group: MutableGroup): MutableGroup {
    this.groups.set(group.key, group);
    if (group.repels.length > 0) this.repellingGroups += 1;
    const siblings = this.groupsOf.get(group.workloadId) ?? new Set();
    this.groupsOf.set(group.workloadId, siblings.add(group));
    return group;
  }

  private removeGroup(group: MutableGroup): void {
    this.groups.delete(group.key);
    if (group.repels.length > 0) this.repellingGroups -= 1;
    const siblings = this.groupsOf.get(group.workloadId);
    siblings?.delete(group);
    if (siblings?.size === 0) this.groupsOf.delete(group.workloadId);
  }
}
