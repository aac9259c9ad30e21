import { CloudlessError } from '@cloudless/base';
import type { StateStore } from '@cloudless/state-store';
import { CLUSTER_ID_KEY, SCHEMA_VERSION, decodeRecord, toKey } from './records.js';

/** Identity of the cluster of a store, and the version of the layout of its records. */
export interface ClusterLayout {
  readonly clusterId: string;
  readonly schemaVersion: number;
}

/**
 * Reads whose records a store has.
 * @returns Undefined for a store in which no coordinator has run.
 * @throws kind `precondition` when this version cannot read the layout, for example because a newer
 *   version wrote it.
 */
export async function readClusterLayout(
  store: Pick<StateStore, 'get'>,
): Promise<ClusterLayout | undefined> {
  const entry = await store.get(toKey('meta', CLUSTER_ID_KEY));
  if (entry === undefined) return undefined;
  const { clusterId, schemaVersion } = decodeRecord('meta', CLUSTER_ID_KEY, entry.value);
  if (schemaVersion === SCHEMA_VERSION) return { clusterId, schemaVersion };
  throw new CloudlessError(
    'precondition',
    `the store has layout ${schemaVersion} and this version reads layout ${SCHEMA_VERSION}; start the version that wrote it`,
  );
}
