import { ScalarType, type DescMessage } from '@bufbuild/protobuf';
import { assert } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';
import {
  decodeRecord,
  parseViewKey,
  recordSchemas,
  toKey,
  type RecordKind,
  type RecordOf,
} from '../records/records.js';
import { IndexedView } from './view.js';

/** Beginning of the keys of most records, which need no further parsing. */
const REPLICA_PREFIX = toKey('replica', '');

/**
 * A view that a store fills while it is opened, so that its records need not be read once more.
 * Pass the view as the `entryConsumer` of the store, then to `openClusterState` with the same
 * store.
 */
export class PreloadedView {
  private readonly filled = new IndexedView();
  private count = 0;
  private hasFailed = false;
  private isComplete = false;

  /**
   * Adds an entry of the store. Each key at most once.
   * @param value - Only valid during the call.
   */
  add(key: string, value: Uint8Array, revision: Revision): void {
    if (this.hasFailed) return;
    if (!key.startsWith(REPLICA_PREFIX)) this.addParsed(key, value, revision);
    else this.addRecord('replica', key.slice(REPLICA_PREFIX.length), key, value, revision);
  }

  private addParsed(key: string, value: Uint8Array, revision: Revision): void {
    const parsed = parseViewKey(key);
    if (parsed !== undefined) this.addRecord(parsed.kind, parsed.id, key, value, revision);
  }

  private addRecord(
    kind: RecordKind,
    id: string,
    key: string,
    value: Uint8Array,
    revision: Revision,
  ): void {
    try {
      const record = decode(kind, id, value);
      const bytes = key.length + value.byteLength;
      this.filled.add(kind, id, { value: record, revision, bytes });
      this.count += 1;
    } catch {
      // The store is then read again at the start, which reports another layout before this record.
      this.hasFailed = true;
    }
  }

  /** Ends the preload: all entries of the store at `revision` were added. */
  end(revision: Revision): void {
    this.filled.revision = revision;
    this.isComplete = true;
  }

  /**
   * Takes the view, once.
   * @returns The view and the number of its records; undefined when not all records are in it.
   */
  take(): { readonly view: IndexedView; readonly count: number } | undefined {
    if (!this.isComplete || this.hasFailed) return undefined;
    this.isComplete = false;
    return { view: this.filled, count: this.count };
  }
}

/** Decodes a record that shares no memory with `value`. */
function decode(kind: RecordKind, id: string, value: Uint8Array): RecordOf<RecordKind> {
  // Replicas have no fields of the type `bytes`, the only ones that share the memory of `value`.
  return decodeRecord(kind, id, kind === 'replica' ? value : value.slice());
}

/** Returns true when a message of the type, or a message in it, has a field of the type `bytes`. */
function hasBytes({ fields }: DescMessage): boolean {
  return fields.some(
    (field) =>
      ('scalar' in field && field.scalar === ScalarType.BYTES) ||
      (field.message !== undefined && hasBytes(field.message)),
  );
}
assert(
  !hasBytes(recordSchemas.replica),
  'a replica would share memory with the bytes that it was decoded from',
);
