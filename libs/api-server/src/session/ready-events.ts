import type { EventInit, Transaction } from '@cloudless/cluster-state';

/** Most events about single replicas of one workload in one commit. */
const MAX_SINGLE_EVENTS = 8;
/**
 * Most events about single replicas in one commit while replicas can be merged: a start of many
 * workloads has a few replicas of each in every commit.
 */
const MAX_SINGLE_EVENTS_IN_COMMIT = 16;
/** The reason of the events that this file merges. */
const READY = 'ReplicaReady';

/**
 * The events of one commit about replicas that have become ready. When many replicas of a workload
 * become ready at the same time by the same cause, one event names all of them: events of their own
 * would be a quarter of the writes of a start.
 */
export class ReadyEvents {
  private readonly groups = new Map<string, EventInit[]>();
  private eventCount = 0;

  /** Number of events that {@link flush} adds. */
  get size(): number {
    const { maxSingleEvents } = this;
    let size = 0;
    for (const { length } of this.groups.values()) size += length > maxSingleEvents ? 1 : length;
    return size;
  }

  /** Most replicas of one group that get an event each. */
  private get maxSingleEvents(): number {
    return this.eventCount > MAX_SINGLE_EVENTS_IN_COMMIT ? 1 : MAX_SINGLE_EVENTS;
  }

  /**
   * Collects an event until {@link flush}.
   * @returns False for an event that is not merged with others: one with another reason or a cause
   *   in the same commit, or one that stands for several events of its replica.
   */
  add(event: EventInit): boolean {
    if (event.reason !== READY || event.count !== undefined) return false;
    const { namespace = '', workload = '', causedBy } = event;
    // An event of the same commit, such as the end of an image pull, causes one event only.
    if (causedBy !== undefined && !('id' in causedBy)) return false;
    const key = `${namespace}/${workload} ${causedBy?.id ?? ''}`;
    const group = this.groups.get(key);
    if (group === undefined) this.groups.set(key, [event]);
    else group.push(event);
    this.eventCount += 1;
    return true;
  }

  /** Adds the events to the transaction of the commit. */
  flush(transaction: Transaction): void {
    const { maxSingleEvents } = this;
    for (const events of this.groups.values())
      if (events.length > maxSingleEvents) transaction.event(merge(events));
      else for (const event of events) transaction.event(event);
    this.groups.clear();
    this.eventCount = 0;
  }
}

function merge(events: readonly EventInit[]): EventInit {
  const [first] = events;
  return {
    ...first,
    message: `${events.length} replicas are ready`,
    replicaId: '',
    replicaIds: events.map(({ replicaId = '' }) => replicaId),
    nodeId: events.every(({ nodeId }) => nodeId === first?.nodeId) ? (first?.nodeId ?? '') : '',
  };
}
