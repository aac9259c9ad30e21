import { systemClock } from '@cloudless/app-kit';
import { CloudlessError, silentLog } from '@cloudless/base';
import {
  MAX_TXN_BYTES,
  MAX_TXN_OPERATIONS,
  readSnapshot,
  verifySnapshot,
  type ChangeEntry,
  type SnapshotSummary,
  type StoreEntry,
} from '@cloudless/state-store';
import { EtcdClient, READ, WRITE } from '../client/etcd-client.js';
import { Compare_CompareTarget } from '../gen/etcd/etcdserverpb/rpc_pb.js';
import type { EtcdStateStoreOptions } from '../store/etcd-state-store.js';
import { requireNoForeignKeys } from '../store/foreign-keys.js';
import { KeySpace } from '../store/key-space.js';
import { completeStoreRecord, createStoreRecord, readStoreRecord } from '../store/store-record.js';

/** Options of {@link restoreEtcdStateStore}. */
export interface EtcdRestoreOptions extends Pick<
  EtcdStateStoreOptions,
  'endpoints' | 'tls' | 'user' | 'prefix' | 'allowForeignKeys' | 'clock' | 'log'
> {
  /** Starts reading a snapshot from `exportSnapshot`. Called twice: to verify, and to restore. */
  readonly openChunks: () => AsyncIterable<Uint8Array>;
  /** Returns what to keep for an entry of the snapshot. Default: the entry. */
  readonly changeEntry?: ChangeEntry;
}

/** Attempts at one transaction of a restore. Each may last for {@link WRITE}. */
const MAX_ATTEMPTS = 5;

/**
 * Creates a store in etcd from a snapshot. Keys and values are those of the snapshot; entries get new
 * revisions, all newer than the revision of the snapshot, because etcd gives them itself.
 * @returns The summary of the snapshot.
 * @throws kind `precondition` when the prefix has a store or keys, the cluster has keys of other
 *   applications, or the snapshot is damaged; the errors of `openEtcdStateStore`. After an error the
 *   prefix may have an incomplete store, which no coordinator opens.
 */
export async function restoreEtcdStateStore(options: EtcdRestoreOptions): Promise<SnapshotSummary> {
  const { clock = systemClock, log = silentLog, prefix = '/cloudless', openChunks } = options;
  const keys = new KeySpace(prefix);
  const { revision: base } = await verifySnapshot(openChunks());
  const client = new EtcdClient({ ...options, clock, log });
  try {
    await client.requireUsableEndpoint();
    await requireEmpty(client, keys, prefix);
    if (options.allowForeignKeys !== true) await requireNoForeignKeys(client, keys, prefix);
    const created = await createStoreRecord(client, keys, { base, isComplete: false });
    if (created === undefined) throw createInUseError(prefix);
    const summary = await putEntries(client, keys, created.createRevision, options);
    await completeStoreRecord(client, keys, { base, since: created.createRevision });
    return summary;
  } finally {
    client.close();
  }
}

async function requireEmpty(client: EtcdClient, keys: KeySpace, prefix: string): Promise<void> {
  if ((await readStoreRecord(client, keys)) !== undefined) throw createInUseError(prefix);
  const request = { ...keys.toEtcdRange(''), limit: 1n, keysOnly: true };
  const { kvs } = await client.call(READ, ({ kv }, settings) => kv.range(request, settings));
  if (kvs.length > 0) throw createInUseError(prefix);
}

function createInUseError(prefix: string): CloudlessError {
  return new CloudlessError(
    'precondition',
    `etcd already has keys under ${prefix}: a restore needs an etcd cluster without keys; use another cluster, or, when nobody needs these keys, stop all coordinators and delete them: etcdctl del --prefix ${prefix}/`,
  );
}

async function putEntries(
  client: EtcdClient,
  keys: KeySpace,
  recordRevision: bigint,
  { openChunks, changeEntry = (entry) => entry }: EtcdRestoreOptions,
): Promise<SnapshotSummary> {
  const entries = readSnapshot(openChunks());
  let group: StoreEntry[] = [];
  let bytes = 0;
  const flush = async (): Promise<void> => {
    if (group.length > 0) await putGroup(client, keys, recordRevision, group);
    group = [];
    bytes = 0;
  };
  for (;;) {
    const next = await entries.next();
    if (next.done === true) {
      await flush();
      return next.value;
    }
    const entry = changeEntry(next.value);
    const size = entry.key.length + entry.value.byteLength;
    if (group.length === MAX_TXN_OPERATIONS || bytes + size > MAX_TXN_BYTES) await flush();
    group.push(entry);
    bytes += size;
  }
}

/**
 * Puts entries while the restore is incomplete, so that a late attempt never changes a store that is
 * in use. Another attempt puts the same values.
 */
async function putGroup(
  client: EtcdClient,
  keys: KeySpace,
  recordRevision: bigint,
  group: readonly StoreEntry[],
): Promise<void> {
  const request = {
    compare: [
      {
        target: Compare_CompareTarget.MOD,
        key: keys.metaKey,
        targetUnion: { case: 'modRevision' as const, value: recordRevision },
      },
    ],
    success: group.map(({ key, value }) => ({
      request: {
        case: 'requestPut' as const,
        value: { key: keys.toEtcdKey(key), value },
      },
    })),
  };
  for (let attempt = 1; ; attempt += 1) {
    try {
      const { succeeded } = await client.call(WRITE, ({ kv }, settings) =>
        kv.txn(request, settings),
      );
      if (succeeded) return;
      throw new CloudlessError('precondition', 'another process changed the store in etcd');
    } catch (reason) {
      const isUnknown =
        reason instanceof CloudlessError && /^(unavailable|deadline)$/.test(reason.kind);
      if (!isUnknown || attempt >= MAX_ATTEMPTS) throw reason;
    }
  }
}
