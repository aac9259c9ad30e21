import { existsSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import ipaddr from 'ipaddr.js';
import type { Clock } from '@cloudless/base';
import { listContainerAddresses } from './container-routes.js';

/** An address of this machine. */
export interface InterfaceAddress {
  readonly interfaceName: string;
  readonly address: string;
  /** The network in CIDR notation; null when the system does not tell. */
  readonly cidr: string | null;
  /** True when the network is that of containers of this machine, as behind a bridge. */
  readonly isBridge: boolean;
}

/** Time for which the list of addresses is used, milliseconds. */
const REFRESH_MS = 5_000;

/** Returns the addresses of this machine, and those of containers without a bridge. */
export function readInterfaceAddresses(): readonly InterfaceAddress[] {
  const containers = listContainerAddresses().map((address) => {
    return { interfaceName: '', address, cidr: `${address}/32`, isBridge: true };
  });
  const own = Object.entries(networkInterfaces()).flatMap(([interfaceName, addresses = []]) => {
    const isBridge = existsSync(`/sys/class/net/${interfaceName}/bridge`);
    return addresses.map(({ address, cidr }) => ({ interfaceName, address, cidr, isBridge }));
  });
  return [...own, ...containers];
}

/**
 * Returns a function that tells whether an address is of this machine: its own addresses, loopback,
 * and the networks of bridges, behind which containers are. Neighbours on other interfaces are not
 * local.
 */
export function createLocalClients(
  clock: Clock,
  read: () => readonly InterfaceAddress[] = readInterfaceAddresses,
): (address: string) => boolean {
  let readAtMs = -Infinity;
  let own = new Set<string>();
  let networks: ReturnType<typeof ipaddr.parseCIDR>[] = [];
  const refresh = (): void => {
    const addresses = read();
    own = new Set(addresses.map(({ address }) => address));
    networks = addresses
      .filter(({ isBridge, cidr }) => isBridge && cidr !== null && ipaddr.isValidCIDR(cidr))
      .map(({ cidr }) => ipaddr.parseCIDR(cidr ?? ''));
    readAtMs = clock.now();
  };
  return (address) => {
    if (address.startsWith('127.') || address === '::1') return true;
    if (clock.now() - readAtMs >= REFRESH_MS) refresh();
    if (own.has(address)) return true;
    if (networks.length === 0 || !ipaddr.isValid(address)) return false;
    const parsed = ipaddr.process(address);
    return networks.some(([network, bits]) => {
      return parsed.kind() === network.kind() && parsed.match(network, bits);
    });
  };
}
