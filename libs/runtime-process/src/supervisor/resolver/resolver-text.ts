import type { NetworkRequest } from '@cloudless/runtime';

/** DNS settings of a process. */
export type DnsSettings = Pick<NetworkRequest, 'dnsServers' | 'dnsSearches' | 'dnsOptions'>;

/** What the resolver of the machine knows by itself. */
export interface MachineResolver {
  /** Text of the resolv.conf of the machine. */
  readonly text: string;
  readonly hostname: string;
}

/**
 * Creates the resolv.conf of a process: the search domains of the settings, then those of the
 * machine, so that the short names of the machine keep their meaning.
 * @see resolv.conf(5)
 */
export function toResolverText(
  { dnsServers = [], dnsSearches = [], dnsOptions = [] }: DnsSettings,
  machine: MachineResolver,
): string {
  const searches = [...new Set([...dnsSearches, ...readSearchDomains(machine)])];
  return [
    '# Written by Cloudless for one replica. The DNS server forwards other names to the resolvers',
    '# of the machine.',
    ...dnsServers.map((address) => `nameserver ${address}`),
    ...(searches.length === 0 ? [] : [`search ${searches.join(' ')}`]),
    ...(dnsOptions.length === 0 ? [] : [`options ${dnsOptions.join(' ')}`]),
    '',
  ].join('\n');
}

/**
 * Returns the search domains of the machine: those of the last line `search` or `domain`, or else
 * the domain of its host name, as the C library does.
 */
function readSearchDomains({ text, hostname }: MachineResolver): readonly string[] {
  const domains = text
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .findLast(([keyword]) => keyword === 'search' || keyword === 'domain')
    ?.slice(1);
  const [, implied = ''] = /^[^.]+\.(.+)$/.exec(hostname) ?? [];
  return (domains ?? [implied]).filter((domain) => domain !== '' && domain !== '.');
}
