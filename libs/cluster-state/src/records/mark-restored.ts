import { clone, create } from '@bufbuild/protobuf';
import { ClusterRecordSchema, RestoredStateSchema } from '@cloudless/api/store';
import type { StoreEntry } from '@cloudless/state-store';
import { CLUSTER_ID_KEY, decodeRecord, encodeRecord, toKey } from './records.js';

/**
 * Marks a state as restored from a backup, when it is called for each entry of the backup: the
 * coordinator that leads on the state decides nothing until an operator accepts the state. A proof in
 * the backup that its store had gone back in time stays.
 * @returns The entry, with another value for the record of the cluster.
 * @throws kind `internal` when the record of the cluster cannot be read.
 */
export function markRestored(entry: StoreEntry): StoreEntry {
  if (entry.key !== toKey('meta', CLUSTER_ID_KEY)) return entry;
  const cluster = clone(ClusterRecordSchema, decodeRecord('meta', CLUSTER_ID_KEY, entry.value));
  const { nodeId = '' } = cluster.restored ?? {};
  if (nodeId !== '') return entry;
  cluster.restored = create(RestoredStateSchema);
  return { ...entry, value: encodeRecord('meta', cluster).bytes };
}
