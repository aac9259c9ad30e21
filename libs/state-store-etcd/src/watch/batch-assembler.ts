import type { Change, ChangeBatch, Revision, StoreEntry } from '@cloudless/state-store';
import { Event_EventType, type Event, type KeyValue } from '../gen/etcd/mvccpb/kv_pb.js';
import type { WatchResponse } from '../gen/etcd/etcdserverpb/rpc_pb.js';
import type { KeySpace, RevisionMap } from '../store/key-space.js';
import { toLeaseId } from '../store/lease-id.js';

/** Converts entries and events of etcd. */
export class EntryCodec {
  constructor(
    private readonly keys: KeySpace,
    private readonly revisions: RevisionMap,
  ) {}

  toEntry({ key, value, modRevision, lease }: KeyValue): StoreEntry {
    const entry = {
      key: this.keys.fromEtcdKey(key),
      value,
      modRevision: this.revisions.fromEtcd(modRevision),
    };
    return lease === 0n ? entry : { ...entry, lease: toLeaseId(lease) };
  }

  toRevision({ modRevision }: KeyValue): Revision {
    return this.revisions.fromEtcd(modRevision);
  }

  /** @returns Undefined for a change outside of the keys of the store. */
  toChange(type: Event_EventType, entry: KeyValue): Change | undefined {
    if (!this.keys.isStoreKey(entry.key)) return undefined;
    if (type === Event_EventType.PUT) return { kind: 'put', entry: this.toEntry(entry) };
    return {
      kind: 'delete',
      key: this.keys.fromEtcdKey(entry.key),
      modRevision: this.revisions.fromEtcd(entry.modRevision),
    };
  }
}

/**
 * Joins the responses of one watch to batches. etcd divides a large response into fragments, and
 * sends several revisions in one response. It never divides a revision between two responses that
 * are not fragments of one.
 */
export class BatchAssembler {
  private fragments: Event[] = [];

  constructor(private readonly codec: EntryCodec) {}

  /** Returns the complete batches; none until the last fragment. */
  add({ events, fragment }: Pick<WatchResponse, 'events' | 'fragment'>): readonly ChangeBatch[] {
    if (fragment) {
      for (const event of events) this.fragments.push(event);
      return [];
    }
    const all = this.fragments.length === 0 ? events : [...this.fragments, ...events];
    this.fragments = [];
    const batches: { revision: bigint; changes: Change[] }[] = [];
    let last: { etcdRevision: bigint; changes: Change[] } | undefined;
    for (const { type, kv } of all) {
      if (kv === undefined) continue;
      if (last?.etcdRevision !== kv.modRevision) {
        last = { etcdRevision: kv.modRevision, changes: [] };
        batches.push({ revision: this.codec.toRevision(kv), changes: last.changes });
      }
      const change = this.codec.toChange(type, kv);
      if (change !== undefined) last.changes.push(change);
    }
    return batches;
  }
}
