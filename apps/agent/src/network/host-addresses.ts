import { networkInterfaces, type NetworkInterfaceInfo } from 'node:os';

const LINK_LOCAL = /^fe[89ab][0-9a-f]:/i;

/**
 * Returns all IPv4 and IPv6 addresses of this machine, also those of loopback. A link-local IPv6
 * address names its interface, without which the system cannot listen there (`fe80::1%eth0`).
 */
export function listLocalAddresses(interfaces = networkInterfaces()): readonly string[] {
  const all = Object.entries(interfaces).flatMap(([name, each = []]) =>
    each.map(({ address }) => (LINK_LOCAL.test(address) ? `${address}%${name}` : address)),
  );
  return [...new Set(all)];
}

/** Most addresses that a Hello may contain. */
const MAX_REPORTED = 256;

/**
 * Returns the addresses of the interfaces of this machine, sorted, without 127.0.0.0/8, ::1 and
 * fe80::/10. Undefined: the addresses cannot be listed, or are more than the coordinator accepts.
 */
export function listReportedAddresses(
  list: () => NodeJS.Dict<NetworkInterfaceInfo[]> = networkInterfaces,
): readonly string[] | undefined {
  try {
    const local = listLocalAddresses(list());
    const reported = local.filter((address) => !/^127\.|^::1$|%/.test(address));
    return reported.length > MAX_REPORTED ? undefined : [...reported].sort();
  } catch {
    return undefined;
  }
}

/** Returns the IPv4 addresses at which other machines may reach this machine, for node ports. */
export function listHostAddresses(interfaces = networkInterfaces()): readonly string[] {
  const all = Object.values(interfaces).flatMap((each) => each ?? []);
  const reachable = all.filter(({ family, internal }) => family === 'IPv4' && !internal);
  return [...new Set(reachable.map(({ address }) => address))];
}
