import { createHash } from 'node:crypto';
import { readlinkSync } from 'node:fs';
import { readBootId } from '../machine/machine.js';

/** Link that names the network namespace of this process, see network_namespaces(7). */
const NAMESPACE_LINK = '/proc/self/ns/net';

/**
 * Returns an id that is equal for the programs of one network namespace of one machine and differs
 * everywhere else: 32 hexadecimal digits. Changes at each boot.
 * @param bootId - Boot id of the machine.
 * @param namespace - Name of the network namespace; machines without namespaces have one.
 */
export function toHostId(bootId: string, namespace: string): string {
  return createHash('sha256').update(`${bootId}\n${namespace}`).digest('hex').slice(0, 32);
}

/** Returns the id of the network namespace of this process. */
export function readHostId(): string {
  const namespace = process.platform === 'linux' ? readlinkSync(NAMESPACE_LINK) : '';
  return toHostId(readBootId(), namespace);
}
