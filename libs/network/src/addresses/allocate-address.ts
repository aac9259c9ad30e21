import { assert, type Random } from '@cloudless/base';
import {
  assignableAddressAt,
  assignableCount,
  isAssignable,
  type AddressRange,
} from './address-range.js';

/** Time after the deletion of a service for which no other service gets its address: one hour. */
export const ADDRESS_HOLD_MS = 3_600_000;

/** Address that a service has, or had until its deletion. */
export interface AssignedAddress {
  /** Unix time in milliseconds at which the service was deleted. Undefined while it exists. */
  readonly releasedAtMs: number | undefined;
}

/** Input of {@link allocateAddress}. */
export interface AddressRequest {
  readonly range: AddressRange;
  /** Addresses with a record in the store, by address. */
  readonly assigned: {
    readonly size: number;
    get(address: string): AssignedAddress | undefined;
  };
  /** Unix time in milliseconds. */
  readonly nowMs: number;
  readonly random: Random;
  /** The only acceptable address, as when a backup is restored. Undefined: any. */
  readonly wanted?: string | undefined;
}

/** Result of {@link allocateAddress}. */
export type AddressAllocation =
  | { readonly kind: 'allocated'; readonly address: string }
  /** No address is free. `message` names the range. */
  | { readonly kind: 'exhausted'; readonly message: string }
  /** The wanted address is outside the range, reserved or taken. */
  | { readonly kind: 'refused'; readonly message: string };

/**
 * Chooses the virtual address of a new service. The search begins at a random address, so that
 * coordinators that choose at the same time rarely choose the same address. The transaction that
 * writes the record must compare the record of the address as `assigned` showed the record: absent,
 * or unchanged when its hold time is over.
 */
export function allocateAddress(request: AddressRequest): AddressAllocation {
  const { range, random, wanted } = request;
  if (wanted !== undefined) return allocateWanted(request, wanted);
  const count = assignableCount(range);
  const start = Math.floor(random.next() * count);
  for (let offset = 0; offset < count; offset += 1) {
    const address = assignableAddressAt(range, (start + offset) % count);
    if (isFree(request, address)) return { kind: 'allocated', address };
  }
  return {
    kind: 'exhausted',
    message:
      `all ${count} virtual addresses of ${range.text} are taken; delete services that are not ` +
      `needed and wait one hour, or make services headless`,
  };
}

function allocateWanted(request: AddressRequest, wanted: string): AddressAllocation {
  const { range } = request;
  if (!isAssignable(range, wanted)) {
    return {
      kind: 'refused',
      message: `${wanted} is not an address that services can have in ${range.text}`,
    };
  }
  return isFree(request, wanted)
    ? { kind: 'allocated', address: wanted }
    : {
        kind: 'refused',
        message: `${wanted} belongs to another service, or did within the last hour`,
      };
}

function isFree({ assigned, nowMs }: AddressRequest, address: string): boolean {
  return isAddressFree(assigned.get(address), nowMs);
}

/**
 * Returns true when a new service may get an address.
 * @param assigned - The record of the address. Undefined: there is none.
 * @param nowMs - Unix time in milliseconds.
 */
export function isAddressFree(assigned: AssignedAddress | undefined, nowMs: number): boolean {
  if (assigned === undefined) return true;
  return assigned.releasedAtMs !== undefined && nowMs - assigned.releasedAtMs >= ADDRESS_HOLD_MS;
}

/** First port of nodes that services of type NODE_PORT use. */
export const FIRST_NODE_PORT = 30_000;
/** Last port of nodes that services of type NODE_PORT use. */
export const LAST_NODE_PORT = 32_767;

/** Result of {@link allocateNodePort}. */
export type NodePortAllocation =
  | { readonly kind: 'allocated'; readonly port: number }
  | { readonly kind: 'exhausted'; readonly message: string }
  | { readonly kind: 'refused'; readonly message: string };

/**
 * Chooses a port of all nodes for a port of a service.
 * @param taken - Ports of the same protocol that services have.
 * @param wanted - The only acceptable port. Undefined or 0: any.
 */
export function allocateNodePort(
  taken: { has(port: number): boolean },
  random: Random,
  wanted?: number,
): NodePortAllocation {
  const count = LAST_NODE_PORT - FIRST_NODE_PORT + 1;
  if (wanted !== undefined && wanted !== 0) {
    if (wanted < FIRST_NODE_PORT || wanted > LAST_NODE_PORT) {
      return {
        kind: 'refused',
        message: `node port ${wanted} is not in ${FIRST_NODE_PORT} to ${LAST_NODE_PORT}`,
      };
    }
    return taken.has(wanted)
      ? { kind: 'refused', message: `node port ${wanted} belongs to another service` }
      : { kind: 'allocated', port: wanted };
  }
  const start = Math.floor(random.next() * count);
  assert(start >= 0 && start < count, 'random numbers are in [0, 1)');
  for (let offset = 0; offset < count; offset += 1) {
    const port = FIRST_NODE_PORT + ((start + offset) % count);
    if (!taken.has(port)) return { kind: 'allocated', port };
  }
  return {
    kind: 'exhausted',
    message: `all node ports from ${FIRST_NODE_PORT} to ${LAST_NODE_PORT} are taken`,
  };
}
