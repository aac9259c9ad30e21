import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { EventSchema, type Event } from '@cloudless/api';
import type { Compare, Operation, Revision } from '@cloudless/state-store';
import { encodeRecord, keyOf, replicaKeyId, type RecordKind, type RecordOf } from './records.js';
import { EvidenceRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import type { Stored } from './view.js';

/** What an event says; id and time are given by the transaction. */
export type EventInit = Omit<
  MessageInitShape<typeof EventSchema>,
  'id' | 'time' | 'causeId' | '$typeName' | '$unknown'
> & {
  /**
   * The event that led to this one: an earlier one, or one that was added before to the same
   * transaction.
   */
  readonly causedBy?: EventInit | Event | undefined;
};

/** Where events get their ids and time. */
export interface EventStamp {
  nextId(): string;
  nowMs(): number;
}

/**
 * Changes that are committed together or not at all. The condition should cover what the plan read,
 * no more: unrelated writes then never make a plan stale.
 */
export class Transaction {
  private readonly compareByKey = new Map<string, Compare>();
  private readonly writeByKey = new Map<string, Operation>();
  private readonly events: EventInit[] = [];
  private lead: EventInit | undefined;

  constructor(private readonly stamp: EventStamp) {}

  /** Number of writes so far; a store takes at most 100. */
  get size(): number {
    return this.writeByKey.size + this.events.length;
  }

  /** Holds only while the record is as it was read, or absent. */
  require(kind: RecordKind, id: string, read: { readonly revision: Revision } | 'absent'): this {
    const key = keyOf(kind, id);
    this.compareByKey.set(key, { key, is: read === 'absent' ? 'absent' : read.revision });
    return this;
  }

  /** Writes a record, over what is there. */
  put<Kind extends RecordKind>(kind: Kind, id: string, record: RecordOf<Kind>): this {
    const key = keyOf(kind, id);
    this.writeByKey.set(key, { put: key, value: encodeRecord(kind, record) });
    return this;
  }

  delete(kind: RecordKind, id: string): this {
    const key = keyOf(kind, id);
    this.writeByKey.set(key, { delete: key });
    return this;
  }

  /** Writes a replica that does not exist yet. */
  createReplica(replica: ReplicaRecord): this {
    const id = replicaKeyId(replica.uid, replica.sequence);
    return this.require('replica', id, 'absent').put('replica', id, replica);
  }

  /**
   * Rewrites a replica, provided it is still as it was read. When it is no longer the ready one
   * that it was, its workload's evidence changes.
   */
  updateReplica(read: Stored<ReplicaRecord>, next: ReplicaRecord): this {
    const id = replicaKeyId(next.uid, next.sequence);
    const before = read.value;
    if (before.ready && !(next.ready && next.containerId === before.containerId)) {
      this.put('evidence', next.uid, create(EvidenceRecordSchema, { uid: next.uid }));
    }
    return this.require('replica', id, read).put('replica', id, next);
  }

  /** Removes a replica, provided it is still as it was read. */
  deleteReplica(read: Stored<ReplicaRecord>): this {
    const id = replicaKeyId(read.value.uid, read.value.sequence);
    return this.require('replica', id, read).delete('replica', id);
  }

  /**
   * Writes an event with the changes it tells of: it is true exactly when they are. Its id and time
   * are given when the transaction is committed, so that ids grow in the order of commits: who has
   * read up to an id misses none before it. The request that caused its cause caused it too.
   */
  event(event: EventInit): this {
    this.events.push(event);
    return this;
  }

  /** Puts an event before the others, as the cause of those that name none. */
  leadBy(event: EventInit): this {
    this.events.unshift(event);
    this.lead = event;
    return this;
  }

  compares(): readonly Compare[] {
    return [...this.compareByKey.values()];
  }

  operations(): readonly Operation[] {
    const stamped = new Map<EventInit | Event, Event>();
    for (const init of this.events.splice(0)) {
      const { causedBy = init === this.lead ? undefined : this.lead, ...said } = init;
      const cause = causedBy === undefined ? undefined : (stamped.get(causedBy) ?? causedBy);
      const event = create(EventSchema, {
        ...said,
        id: this.stamp.nextId(),
        time: timestampFromMs(this.stamp.nowMs()),
      });
      if (cause !== undefined && '$typeName' in cause) event.causeId = (cause as Event).id;
      if (event.requestId === '') event.requestId = cause?.requestId ?? '';
      stamped.set(init, event);
      this.put('event', event.id, event);
    }
    return [...this.writeByKey.values()];
  }
}
