import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { EventSchema, type Event } from '@cloudless/api';
import type { Compare, Revision } from '@cloudless/state-store';
import { EvidenceRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import type { MutableTerm } from '../leadership/leadership-term.js';
import {
  LEADER_KEY,
  encodeRecord,
  toKey,
  toReplicaKeyId,
  type RecordKind,
  type RecordOf,
} from '../records/records.js';
import type { Stored } from '../view/view.js';
import { toEventErrorReason } from './event-error-reason.js';

/** The fields of a new event. The transaction sets id, time and the id of the cause. */
export type EventInit = Omit<
  MessageInitShape<typeof EventSchema>,
  'id' | 'time' | 'causeId' | '$typeName' | '$unknown'
> & {
  /** The event that caused this event: stored before, or added earlier to the same transaction. */
  readonly causedBy?: EventInit | Event | undefined;
  /** Not a message, which {@link Transaction.toOperations} would change. */
  readonly $typeName?: never;
};

/** Source of the ids and times of events. */
export interface EventStamp {
  nextId(): string;
  nowMs(): number;
}

/**
 * Changes that are committed together or not at all. Call {@link require} exactly for the records
 * that the plan has read, so that unrelated writes never fail the commit.
 * @example
 * const transaction = state.transaction().require('node', id, node).put('node', id, changed);
 * await state.commit(transaction);
 */
export class Transaction {
  private readonly compareByKey = new Map<string, Compare>();
  private readonly writeByKey = new Map<string, RecordWrite>();
  private readonly events: EventInit[] = [];
  private leadingEvent: EventInit | undefined;

  /** @param term - The leadership under which the transaction commits; absent: under none. */
  constructor(
    private readonly eventStamp: EventStamp,
    readonly term?: MutableTerm,
  ) {
    if (term !== undefined) this.require('leader', LEADER_KEY, term);
  }

  /** Number of writes so far. A store accepts at most 100 writes in one transaction. */
  get size(): number {
    return this.writeByKey.size + this.events.length;
  }

  /**
   * Adds the condition that the record is unchanged since it was read, or absent. Replaces an
   * earlier condition on the same record.
   */
  require(kind: RecordKind, id: string, read: { readonly revision: Revision } | 'absent'): this {
    return this.requireKey(toKey(kind, id), read);
  }

  /**
   * Writes a record, whether or not it exists. The record belongs to the view from now on: do not
   * change it.
   */
  put<Kind extends RecordKind>(kind: Kind, id: string, record: RecordOf<Kind>): this {
    return this.putKey(toKey(kind, id), kind, id, record);
  }

  /** Deletes a record if it exists. */
  delete(kind: RecordKind, id: string): this {
    const key = toKey(kind, id);
    this.writeByKey.set(key, { delete: key });
    return this;
  }

  /** Writes a new replica. The commit conflicts when a replica with this id exists. */
  createReplica(replica: ReplicaRecord): this {
    const id = toReplicaKeyId(replica.uid, replica.sequence);
    const key = toKey('replica', id); // the condition and the write share the key
    return this.requireKey(key, 'absent').putKey(key, 'replica', id, replica);
  }

  /**
   * Rewrites a replica. The commit conflicts when the replica has changed since it was read. When
   * the replica stops being ready, or is ready with another container, the readiness guard of its
   * workload changes too.
   */
  updateReplica(read: Stored<ReplicaRecord>, next: ReplicaRecord): this {
    const id = toReplicaKeyId(next.uid, next.sequence);
    const key = toKey('replica', id);
    const before = read.value;
    if (before.ready && !(next.ready && next.containerId === before.containerId)) {
      this.put('evidence', next.uid, create(EvidenceRecordSchema, { uid: next.uid }));
    }
    return this.requireKey(key, read).putKey(key, 'replica', id, next);
  }

  /** Deletes a replica. The commit conflicts when the replica has changed since it was read. */
  deleteReplica(read: Stored<ReplicaRecord>): this {
    const id = toReplicaKeyId(read.value.uid, read.value.sequence);
    return this.require('replica', id, read).delete('replica', id);
  }

  private requireKey(key: string, read: { readonly revision: Revision } | 'absent'): this {
    this.compareByKey.set(key, { key, is: read === 'absent' ? 'absent' : read.revision });
    return this;
  }

  private putKey<Kind extends RecordKind>(
    key: string,
    kind: Kind,
    id: string,
    record: RecordOf<Kind>,
  ): this {
    const { bytes, isExact } = encodeRecord(kind, record);
    const exact = isExact ? record : undefined;
    this.writeByKey.set(key, { put: key, value: bytes, kind, id, record: exact });
    return this;
  }

  /**
   * Adds an event that is stored with the changes. Its id and time are set at the commit, so that
   * ids grow in commit order and a reader that resumes after an id misses no event. An event
   * without a request id gets the request id of its cause.
   */
  event(event: EventInit): this {
    this.events.push(event);
    return this;
  }

  /** Adds an event before all others, as the cause of all events that name no cause. */
  prependCause(event: EventInit): this {
    this.events.unshift(event);
    this.leadingEvent = event;
    return this;
  }

  /** The conditions for the store. */
  toCompares(): readonly Compare[] {
    return [...this.compareByKey.values()];
  }

  /** The writes for the store. Sets the ids and times of the events that were added until now. */
  toOperations(): readonly RecordWrite[] {
    const stamped = new Map<EventInit | Event, Event>();
    for (const init of this.events.splice(0)) {
      const causedBy =
        init.causedBy ?? (init === this.leadingEvent ? undefined : this.leadingEvent);
      const cause = causedBy === undefined ? undefined : (stamped.get(causedBy) ?? causedBy);
      // causedBy is no field of the message, so create skips it.
      const event = create(EventSchema, init);
      event.errorReason = init.errorReason ?? toEventErrorReason(event.reason);
      event.id = this.eventStamp.nextId();
      event.time = timestampFromMs(this.eventStamp.nowMs());
      if (cause !== undefined && '$typeName' in cause) event.causeId = (cause as Event).id;
      if (event.requestId === '') event.requestId = cause?.requestId ?? '';
      stamped.set(init, event);
      this.put('event', event.id, event);
    }
    return [...this.writeByKey.values()];
  }
}

/** A put of a record, as the store and the view get it. */
export interface RecordPut {
  readonly put: string;
  readonly value: Uint8Array;
  readonly kind: RecordKind;
  /** The id in the key. */
  readonly id: string;
  /**
   * The record that decoding the bytes would give again, so that the view need not decode them;
   * undefined when the bytes give another record.
   */
  readonly record: RecordOf<RecordKind> | undefined;
}

/** An operation for the store. */
export type RecordWrite = RecordPut | { readonly delete: string };
