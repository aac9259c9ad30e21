import { networkInterfaces } from 'node:os';

/** Returns the IPv4 addresses at which other machines may reach this machine, for node ports. */
export function listHostAddresses(interfaces = networkInterfaces()): readonly string[] {
  const all = Object.values(interfaces).flatMap((each) => each ?? []);
  const reachable = all.filter(({ family, internal }) => family === 'IPv4' && !internal);
  return [...new Set(reachable.map(({ address }) => address))];
}
