import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import { HeldPorts, inPortOrder, type HostPort } from './host-ports.js';
import { toLabelMap, type LabelMap } from './labels.js';
import { compareText } from './order.js';
import type { WorkloadTerm } from './request.js';
import type { Reservation } from './reservation.js';
import { minus, NO_RESOURCES, plus, toResources, type Resources } from './resources.js';

/** Reservations of one node. */
export interface Booked {
  readonly allocated: Resources;
  readonly replicas: number;
}

/** Replicas with the same workload, labels and anti-affinity. */
export interface ReplicaGroup {
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  readonly labels: LabelMap;
  /**
   * Required anti-affinity terms. They exclude replicas that they match from the domains of this
   * group.
   */
  readonly repels: readonly WorkloadTerm[];
  /** Replica counts by node. Contains no entry for nodes without replicas of the group. */
  readonly perNode: ReadonlyMap<NodeId, Head>;
}

/** Number of replicas of a group on a node. */
export interface Head {
  readonly staying: number;
  readonly leaving: number;
}

/** Copy of the values needed to remove a reservation, in case the caller changes its object. */
interface Entry {
  readonly nodeId: NodeId;
  readonly leaving: boolean;
  readonly resources: Resources;
  readonly hostPorts: readonly HostPort[];
  readonly group: OpenGroup;
}

interface OpenGroup extends ReplicaGroup {
  readonly key: string;
  readonly perNode: Map<NodeId, Head>;
}

const NOTHING_BOOKED: Booked = { allocated: NO_RESOURCES, replicas: 0 };
const NOBODY: Head = { staying: 0, leaving: 0 };

/**
 * All reservations, indexed by node and by group of alike replicas. Holds only node ids: a
 * reservation may be added before its node and outlive it, so the order of changes does not matter.
 */
export class Ledger {
  private readonly entries = new Map<ReplicaId, Entry>();
  private readonly booked = new Map<NodeId, Booked>();
  private ports = new HeldPorts();
  private readonly groups = new Map<string, OpenGroup>();
  private readonly groupsOf = new Map<WorkloadId, Set<OpenGroup>>();

  /** Adds a reservation, or replaces the older reservation of the same replica. */
  enter(reservation: Reservation): void {
    this.remove(reservation.replicaId);
    const { nodeId, leaving = false } = reservation;
    const entry: Entry = {
      nodeId,
      leaving,
      resources: toResources(reservation.resources),
      hostPorts: inPortOrder(reservation.hostPorts),
      group: this.groupFor(reservation),
    };
    this.entries.set(reservation.replicaId, entry);
    const { allocated, replicas } = this.bookedOn(nodeId);
    this.booked.set(nodeId, {
      allocated: plus(allocated, entry.resources),
      replicas: replicas + 1,
    });
    this.ports.count(nodeId, entry.hostPorts, 1);
    this.count(entry, 1);
  }

  /** Removes the reservation of a replica. Does nothing when there is none. */
  remove(replicaId: ReplicaId): void {
    const entry = this.entries.get(replicaId);
    if (entry === undefined) return;
    this.entries.delete(replicaId);
    const { allocated, replicas } = this.bookedOn(entry.nodeId);
    if (replicas === 1) this.booked.delete(entry.nodeId);
    else
      this.booked.set(entry.nodeId, {
        allocated: minus(allocated, entry.resources),
        replicas: replicas - 1,
      });
    this.ports.count(entry.nodeId, entry.hostPorts, -1);
    this.count(entry, -1);
  }

  bookedOn(nodeId: NodeId): Booked {
    return this.booked.get(nodeId) ?? NOTHING_BOOKED;
  }

  /** Returns the first of `ports` that a replica, leaving or not, holds on the node. */
  takenPort(nodeId: NodeId, ports: readonly HostPort[]): HostPort | undefined {
    return this.ports.firstTaken(nodeId, ports);
  }

  allGroups(): Iterable<ReplicaGroup> {
    return this.groups.values();
  }

  /** Counts the replicas of a workload that are not leaving, by node, for all labels. */
  stayingOf(workloadId: WorkloadId): Map<NodeId, number> {
    const staying = new Map<NodeId, number>();
    for (const group of this.groupsOf.get(workloadId) ?? []) {
      for (const [nodeId, head] of group.perNode)
        staying.set(nodeId, (staying.get(nodeId) ?? 0) + head.staying);
    }
    return staying;
  }

  /** Returns an independent copy. */
  clone(): Ledger {
    const copy = new Ledger();
    for (const [nodeId, booked] of this.booked) copy.booked.set(nodeId, booked);
    copy.ports = this.ports.clone();
    for (const group of this.groups.values())
      copy.open({ ...group, perNode: new Map(group.perNode) });
    for (const [replicaId, entry] of this.entries) {
      copy.entries.set(replicaId, {
        ...entry,
        group: copy.groups.get(entry.group.key) ?? entry.group,
      });
    }
    return copy;
  }

  private count({ nodeId, leaving, group }: Entry, change: 1 | -1): void {
    const head = group.perNode.get(nodeId) ?? NOBODY;
    const next = leaving
      ? { ...head, leaving: head.leaving + change }
      : { ...head, staying: head.staying + change };
    if (next.staying + next.leaving > 0) group.perNode.set(nodeId, next);
    else group.perNode.delete(nodeId);
    if (group.perNode.size === 0) this.close(group);
  }

  private groupFor({
    workloadId,
    namespace,
    labels = {},
    workloadAntiAffinity = [],
  }: Reservation): OpenGroup {
    const repels = workloadAntiAffinity.filter((term) => term.mode === 'required');
    const sortedLabels = Object.entries(labels).sort(([a], [b]) => compareText(a, b));
    const key = JSON.stringify([workloadId, namespace, sortedLabels, repels]);
    return (
      this.groups.get(key) ??
      this.open({
        key,
        workloadId,
        namespace,
        labels: toLabelMap(labels),
        repels,
        perNode: new Map(),
      })
    );
  }

  private open(group: OpenGroup): OpenGroup {
    this.groups.set(group.key, group);
    const siblings = this.groupsOf.get(group.workloadId) ?? new Set();
    this.groupsOf.set(group.workloadId, siblings.add(group));
    return group;
  }

  private close(group: OpenGroup): void {
    this.groups.delete(group.key);
    const siblings = this.groupsOf.get(group.workloadId);
    siblings?.delete(group);
    if (siblings?.size === 0) this.groupsOf.delete(group.workloadId);
  }
}
