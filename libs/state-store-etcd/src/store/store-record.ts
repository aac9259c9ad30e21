import { CloudlessError } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';
import { READ, WRITE, type EtcdClient } from '../client/etcd-client.js';
import { Compare_CompareTarget } from '../gen/etcd/etcdserverpb/rpc_pb.js';
import { RevisionMap, type KeySpace } from './key-space.js';

/** Version of the layout of keys in etcd that this file writes and reads. */
export const ETCD_FORMAT = 1;

/** The record of a store in etcd. */
export interface StoreRecord {
  /** Revision of the store at its creation: 0, or that of the backup. */
  readonly base: Revision;
  /** False while a backup is being restored. */
  readonly isComplete: boolean;
}

/**
 * Opens the store of a prefix, or creates a new one.
 * @throws kind `precondition` when the store has another format, or its restore did not complete.
 */
export async function openStoreRecord(client: EtcdClient, keys: KeySpace): Promise<RevisionMap> {
  const found =
    (await readStoreRecord(client, keys)) ??
    (await createStoreRecord(client, keys, { base: 0n, isComplete: true })) ??
    (await readStoreRecord(client, keys));
  if (found === undefined)
    throw new CloudlessError('STORE_UNAVAILABLE', 'the record of the store in etcd was deleted');
  return toRevisionMap(found);
}

/**
 * Opens the store of a prefix, and changes nothing.
 * @throws kind `notFound` when there is no store; the errors of {@link openStoreRecord}.
 */
export async function openExistingRecord(
  client: EtcdClient,
  keys: KeySpace,
  prefix: string,
): Promise<RevisionMap> {
  const found = await readStoreRecord(client, keys);
  if (found === undefined)
    throw new CloudlessError(
      'notFound',
      `etcd has no store under the prefix ${prefix}; set --etcd-prefix to the prefix of the store`,
    );
  return toRevisionMap(found);
}

function toRevisionMap({ record, createRevision }: FoundRecord): RevisionMap {
  if (!record.isComplete)
    throw new CloudlessError(
      'precondition',
      'the restore of a backup into this prefix of etcd did not complete; delete its keys and restore again',
    );
  return new RevisionMap(record.base, createRevision);
}

interface FoundRecord {
  readonly record: StoreRecord;
  readonly createRevision: bigint;
}

/** @returns Undefined when there is no store. */
export async function readStoreRecord(
  client: EtcdClient,
  { metaKey: key }: KeySpace,
): Promise<FoundRecord | undefined> {
  const { kvs } = await client.call(READ, ({ kv }, settings) => kv.range({ key }, settings));
  const [entry] = kvs;
  if (entry === undefined) return undefined;
  return { record: decode(entry.value), createRevision: entry.createRevision };
}

/** @returns Undefined when another process created the record first. */
export async function createStoreRecord(
  client: EtcdClient,
  { metaKey: key }: KeySpace,
  record: StoreRecord,
): Promise<FoundRecord | undefined> {
  const request = toGuardedPut(key, encode(record), 0n); // 0: the key does not exist
  const { succeeded, header } = await client.call(WRITE, ({ kv }, settings) =>
    kv.txn(request, settings),
  );
  return succeeded ? { record, createRevision: header?.revision ?? 0n } : undefined;
}

/**
 * Marks the restore of the store as complete.
 * @param since - Revision of etcd at which the record was created.
 * @throws kind `precondition` when another process changed the record.
 */
export async function completeStoreRecord(
  client: EtcdClient,
  { metaKey: key }: KeySpace,
  { base, since }: { readonly base: Revision; readonly since: bigint },
): Promise<void> {
  const value = encode({ base, isComplete: true });
  const request = toGuardedPut(key, value, since);
  const { succeeded } = await client.call(WRITE, ({ kv }, settings) => kv.txn(request, settings));
  if (!succeeded)
    throw new CloudlessError('precondition', 'another process changed the store in etcd');
}

/**
 * Writes the record of a store again, unchanged, so that etcd has a newer revision which watches of
 * all keys show. Has no effect when another process does so at the same time.
 */
export async function rewriteStoreRecord(
  client: EtcdClient,
  { metaKey: key }: KeySpace,
): Promise<void> {
  const { kvs } = await client.call(READ, ({ kv }, settings) => kv.range({ key }, settings));
  const [entry] = kvs;
  if (entry === undefined)
    throw new CloudlessError('STORE_UNAVAILABLE', 'the record of the store in etcd was deleted');
  const request = toGuardedPut(key, entry.value, entry.modRevision);
  // a second attempt has no effect after a first one that etcd applied
  await client.call(READ, ({ kv }, settings) => kv.txn(request, settings));
}

/** Returns a transaction that writes a key unless the key was changed since a revision of etcd. */
function toGuardedPut(key: Uint8Array, value: Uint8Array, since: bigint) {
  return {
    compare: [
      {
        target: Compare_CompareTarget.MOD,
        key,
        targetUnion: { case: 'modRevision' as const, value: since },
      },
    ],
    success: [{ request: { case: 'requestPut' as const, value: { key, value } } }],
  };
}

function encode({ base, isComplete }: StoreRecord): Uint8Array {
  return Buffer.from(JSON.stringify({ format: ETCD_FORMAT, base: String(base), isComplete }));
}

function decode(value: Uint8Array): StoreRecord {
  try {
    const { format, base, isComplete } = JSON.parse(Buffer.from(value).toString()) as Record<
      string,
      unknown
    >;
    if (typeof format === 'number' && format !== ETCD_FORMAT)
      throw new CloudlessError(
        'precondition',
        `the store in etcd has format ${format}, and this program supports format ${ETCD_FORMAT}; use the version of Cloudless that wrote it`,
      );
    return { base: BigInt(String(base)), isComplete: isComplete === true };
  } catch (cause) {
    if (cause instanceof CloudlessError) throw cause;
    throw new CloudlessError('precondition', 'the record of the store in etcd cannot be read', {
      cause,
    });
  }
}
