import { CloudlessError, errorKindOf } from '@cloudless/base';
import { READ, type EtcdClient } from '../client/etcd-client.js';
import type { KeySpace } from './key-space.js';

/**
 * Refuses an etcd cluster with keys of other applications: the revision of etcd counts the changes
 * of all keys, and a coordinator waits until it has seen every revision. A user of etcd who may read
 * only the prefix cannot be checked.
 * @throws kind `precondition` naming one such key.
 */
export async function requireNoForeignKeys(
  client: EtcdClient,
  keys: KeySpace,
  prefix: string,
): Promise<void> {
  for (const range of keys.listForeignRanges()) {
    const request = { ...range, limit: 1n, keysOnly: true };
    const found = await client
      .call(READ, ({ kv }, settings) => kv.range(request, settings))
      .catch((reason: unknown) => {
        if (errorKindOf(reason) === 'denied') return { kvs: [] };
        throw reason;
      });
    const [foreign] = found.kvs;
    if (foreign === undefined) continue;
    throw new CloudlessError(
      'precondition',
      `the etcd cluster holds the key ${JSON.stringify(Buffer.from(foreign.key).toString())} outside of the prefix ${prefix}; use an etcd cluster of its own for Cloudless, or the prefix with which the store was created`,
    );
  }
}
