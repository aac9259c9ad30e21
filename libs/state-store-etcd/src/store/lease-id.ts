import { CloudlessError } from '@cloudless/base';
import type { LeaseId } from '@cloudless/state-store';

const LEASE_ID = /^[0-9a-f]{16}$/;

/** Returns the text of a lease of etcd, in the form of `etcdctl lease list`. */
export function toLeaseId(id: bigint): LeaseId {
  return id.toString(16).padStart(16, '0');
}

/** @throws kind `notFound` for a text that is not the id of any lease of etcd. */
export function parseLeaseId(lease: LeaseId): bigint {
  const id = LEASE_ID.test(lease) ? BigInt(`0x${lease}`) : 0n;
  if (id > 0n && id < 2n ** 63n) return id;
  throw new CloudlessError('notFound', 'the lease does not exist');
}
