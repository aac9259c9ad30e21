import { Event_Category as Category, Event_Severity as Severity, type Event } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { EventInit, Transaction } from '@cloudless/cluster-state';
import { READY, createReadyEvent, createSubject } from './report-events.js';

/** Most events about single replicas of one workload in one commit. */
const MAX_SINGLE_EVENTS = 8;
/**
 * Most events about single replicas in one commit while replicas can be merged: a start of many
 * workloads has a few replicas of each in every commit.
 */
const MAX_SINGLE_EVENTS_IN_COMMIT = 16;

/** The replicas of one workload that become ready by the same cause. */
interface ReadyGroup {
  /** Undefined for replicas of deleted workloads. */
  readonly workload: WorkloadRecord | undefined;
  readonly cause: Event | undefined;
  readonly replicas: [ReplicaRecord, ...ReplicaRecord[]];
}

/**
 * The events of one commit about replicas that have become ready. When many replicas of a workload
 * become ready at the same time by the same cause, one event names all of them: events of their own
 * would be a quarter of the writes of a start.
 */
export class ReadyEvents {
  private readonly groups: ReadyGroup[] = [];
  private replicaCount = 0;

  /** Number of events that {@link flush} adds. */
  get size(): number {
    const { maxSingleEvents } = this;
    if (maxSingleEvents === 1) return this.groups.length;
    let size = 0;
    for (const { replicas } of this.groups)
      size += replicas.length > maxSingleEvents ? 1 : replicas.length;
    return size;
  }

  /** Most replicas of one group that get an event each. */
  private get maxSingleEvents(): number {
    return this.replicaCount > MAX_SINGLE_EVENTS_IN_COMMIT ? 1 : MAX_SINGLE_EVENTS;
  }

  /**
   * Collects the event of a replica until {@link flush}.
   * @param replica - The record as it is written.
   * @param cause - A stored event, if any.
   */
  add(
    replica: ReplicaRecord,
    workload: WorkloadRecord | undefined,
    cause: Event | undefined,
  ): void {
    this.replicaCount += 1;
    const group = this.findGroup(workload, cause);
    if (group === undefined) this.groups.push({ workload, cause, replicas: [replica] });
    else group.replicas.push(replica);
  }

  /** Adds the events to the transaction of the commit. Must be called once. */
  flush(transaction: Transaction): void {
    const { maxSingleEvents } = this;
    for (const group of this.groups)
      if (group.replicas.length > maxSingleEvents) transaction.event(createMergedEvent(group));
      else
        for (const replica of group.replicas) transaction.event(createSingleEvent(group, replica));
  }

  /** A commit has few groups, so a loop takes less time than a key for a map. */
  private findGroup(
    workload: WorkloadRecord | undefined,
    cause: Event | undefined,
  ): ReadyGroup | undefined {
    for (const group of this.groups)
      if (group.cause?.id === cause?.id && haveSameName(group.workload, workload)) return group;
    return undefined;
  }
}

function haveSameName(a: WorkloadRecord | undefined, b: WorkloadRecord | undefined): boolean {
  return a === b || (a?.name === b?.name && a?.namespace === b?.namespace);
}

function createSingleEvent({ workload, cause }: ReadyGroup, replica: ReplicaRecord): EventInit {
  return { ...createReadyEvent(createSubject(replica, workload)), causedBy: cause };
}

function createMergedEvent({ workload, cause, replicas }: ReadyGroup): EventInit {
  const [{ nodeId }] = replicas;
  return {
    category: Category.WORKLOAD,
    severity: Severity.INFO,
    reason: READY,
    message: `${replicas.length} replicas are ready`,
    namespace: workload?.namespace ?? '',
    workload: workload?.name ?? '',
    replicaIds: replicas.map(({ id }) => id),
    nodeId: replicas.every((replica) => replica.nodeId === nodeId) ? nodeId : '',
    causedBy: cause,
  };
}
