import { isIP } from 'node:net';
import { isInRange, type AddressRange } from '@cloudless/network';

/** A DNS server of the host. */
export interface Resolver {
  readonly address: string;
  readonly port: number;
}

/** Most resolvers that are asked for one question. */
const MAX_RESOLVERS = 3;

/**
 * Reads the name servers of a resolv.conf file that questions may be forwarded to.
 * @param range - Virtual addresses: the DNS server itself is there, so that a question to one of them
 *   would come back.
 * @see man 5 resolv.conf
 */
export function parseResolvers(text: string, range: AddressRange | undefined): readonly Resolver[] {
  const resolvers = new Map<string, Resolver>();
  for (const line of text.split('\n')) {
    const [keyword, address = ''] = line.trim().split(/\s+/);
    if (keyword !== 'nameserver' || isIP(withoutZone(address)) === 0) continue;
    if (range !== undefined && isInRange(range, address)) continue;
    resolvers.set(address, { address, port: 53 });
  }
  return [...resolvers.values()].slice(0, MAX_RESOLVERS);
}

function withoutZone(address: string): string {
  return address.split('%', 1)[0] ?? '';
}
