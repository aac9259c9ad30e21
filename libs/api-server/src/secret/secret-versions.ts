import { create } from '@bufbuild/protobuf';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { SecretVersionSchema, type SecretVersion } from '@cloudless/api';
import {
  SecretValueRecordSchema,
  type SecretRecord,
  type SecretValueRecord,
} from '@cloudless/api/store';
import { CloudlessError, type Random } from '@cloudless/base';
import {
  putFilesGuard,
  toValueKeyId,
  type ClusterView,
  type Transaction,
} from '@cloudless/cluster-state';
import { sealSecret, type Envelope, type SecretData } from '@cloudless/secrets';
import { listPinnedVersions } from '../files/workload-uses.js';
import type { SecretKeyRing } from './secret-keys.js';
import { toSecretKey, toUsedObject } from './secret-lookup.js';

/** Versions of a secret that are kept without a use. */
export const KEPT_VERSIONS = 10;
/** Versions of a secret at most. All are deleted in one transaction. */
const MAX_VERSIONS = 24;

/**
 * Adds the encrypted values of a new version to a transaction, the version to the record, and removes
 * versions that are no longer kept. Changes `record`.
 */
export function putVersion(
  { view, ring, random }: { view: ClusterView; ring: SecretKeyRing; random: Random },
  transaction: Transaction,
  record: SecretRecord,
  { data, createdAt }: { readonly data: SecretData; readonly createdAt: Timestamp },
): Transaction {
  const { namespace, name, uid } = record;
  const version = record.version + 1;
  const { active } = ring;
  const envelope = sealSecret(active, { namespace, name, uid, version }, data, random);
  record.version = version;
  record.versions.push(describeVersion(version, data, { createdAt, masterKeyId: active.id }));
  putFilesGuard(view, transaction, namespace)
    // Conflicts with a rotation that retires the key meanwhile.
    .require('masterkey', active.id, active.stored)
    .put('secretvalue', toValueKeyId(uid, version), toValueRecord(envelope));
  if (record.versions.length > KEPT_VERSIONS) removeOldVersions(view, transaction, record);
  return transaction;
}

/** Builds the record of encrypted values. */
export function toValueRecord({
  masterKeyId,
  wrappedKey,
  ciphertext,
}: Envelope): SecretValueRecord {
  return create(SecretValueRecordSchema, { masterKeyId, wrappedKey, ciphertext });
}

/** Deletes a secret with all versions in a transaction. */
export function deleteVersions(transaction: Transaction, { uid, versions }: SecretRecord): void {
  for (const { version } of versions) transaction.delete('secretvalue', toValueKeyId(uid, version));
}

function describeVersion(
  version: number,
  data: SecretData,
  { createdAt, masterKeyId }: { readonly createdAt: Timestamp; readonly masterKeyId: string },
): SecretVersion {
  const sizes = Object.fromEntries([...data].map(([key, { length }]) => [key, length]));
  return create(SecretVersionSchema, { version, createdAt, masterKeyId, sizes });
}

function removeOldVersions(
  view: ClusterView,
  transaction: Transaction,
  record: SecretRecord,
): void {
  const pinned = listPinnedVersions(view, toUsedObject(record));
  const oldest = record.version - KEPT_VERSIONS;
  const isKept = ({ version }: SecretVersion): boolean => version > oldest || pinned.has(version);
  const removed = record.versions.filter((version) => !isKept(version));
  record.versions = record.versions.filter(isKept);
  if (record.versions.length > MAX_VERSIONS) {
    throw new CloudlessError(
      'exhausted',
      `workloads use ${record.versions.length - KEPT_VERSIONS} old versions of secret "${toSecretKey(record)}"; at most ${MAX_VERSIONS} versions are kept; let the workloads use a newer version`,
    );
  }
  for (const { version } of removed)
    transaction.delete('secretvalue', toValueKeyId(record.uid, version));
}
