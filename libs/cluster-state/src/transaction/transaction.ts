import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { EventSchema, type Event } from '@cloudless/api';
import type { Compare, Operation, Revision } from '@cloudless/state-store';
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
  private readonly writeByKey = new Map<string, Write>();
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
    return this.putKey(toKey(kind, id), kind, record);
  }

  /** Deletes a record if it exists. */
  delete(kind: RecordKind, id: string): this {
    const key = toKey(kind, id);
    this.writeByKey.set(key, { operation: { delete: key }, written: undefined });
    return this;
  }

  /** Writes a new replica. The commit conflicts when a replica with this id exists. */
  createReplica(replica: ReplicaRecord): this {
    const key = toReplicaKey(replica);
    return this.requireKey(key, 'absent').putKey(key, 'replica', replica);
  }

  /**
   * Rewrites a replica. The commit conflicts when the replica has changed since it was read. When
   * the replica stops being ready, or is ready with another container, the readiness guard of its
   * workload changes too.
   */
  updateReplica(read: Stored<ReplicaRecord>, next: ReplicaRecord): this {
    const key = toReplicaKey(next);
    const before = read.value;
    if (before.ready && !(next.ready && next.containerId === before.containerId)) {
      this.put('evidence', next.uid, create(EvidenceRecordSchema, { uid: next.uid }));
    }
    return this.requireKey(key, read).putKey(key, 'replica', next);
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

  private putKey<Kind extends RecordKind>(key: string, kind: Kind, record: RecordOf<Kind>): this {
    const { bytes, isExact } = encodeRecord(kind, record);
    const written = isExact ? { key, bytes, record } : undefined;
    this.writeByKey.set(key, { operation: { put: key, value: bytes }, written });
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
  toOperations(): readonly Operation[] {
    const stamped = new Map<EventInit | Event, Event>();
    for (const init of this.events.splice(0)) {
      const { causedBy = init === this.leadingEvent ? undefined : this.leadingEvent, ...fields } =
        init;
      const cause = causedBy === undefined ? undefined : (stamped.get(causedBy) ?? causedBy);
      const event = create(EventSchema, {
        errorReason: toEventErrorReason(fields.reason ?? ''),
        ...fields,
        id: this.eventStamp.nextId(),
        time: timestampFromMs(this.eventStamp.nowMs()),
      });
      if (cause !== undefined && '$typeName' in cause) event.causeId = (cause as Event).id;
      if (event.requestId === '') event.requestId = cause?.requestId ?? '';
      stamped.set(init, event);
      this.put('event', event.id, event);
    }
    const operations: Operation[] = [];
    this.writeByKey.forEach(({ operation }) => operations.push(operation));
    return operations;
  }

  /**
   * The written records that decoding their bytes would give again, so that the view need not decode
   * them. Call this method after {@link toOperations}.
   */
  listWritten(): readonly WrittenRecord[] {
    const list: WrittenRecord[] = [];
    this.writeByKey.forEach(({ written }) => {
      if (written !== undefined) list.push(written);
    });
    return list;
  }
}

/** A record with the bytes that the store gets for it. */
export interface WrittenRecord {
  readonly key: string;
  readonly bytes: Uint8Array;
  readonly record: RecordOf<RecordKind>;
}

interface Write {
  readonly operation: Operation;
  /** Undefined for a deletion, and for a record whose bytes give another record. */
  readonly written: WrittenRecord | undefined;
}

/** The condition and the write of a replica share the key, which both have to look up. */
function toReplicaKey({ uid, sequence }: ReplicaRecord): string {
  return toKey('replica', toReplicaKeyId(uid, sequence));
}
