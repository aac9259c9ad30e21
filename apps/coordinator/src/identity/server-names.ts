import { isIP, isIPv4 } from 'node:net';
import { isLoopbackAddress } from '@cloudless/identity';

/** Names by which clients address a coordinator: the SANs of its certificate. */
export interface ServerNames {
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
  /** The name that other machines use, for the join command. */
  readonly primary: string;
}

/** What {@link createServerNames} chooses from. */
export interface ServerNameSources {
  /** The address that the coordinator listens on. */
  readonly host: string;
  /** Names and addresses from `--advertise`. */
  readonly advertise: readonly string[];
  readonly hostname: string;
  /** Addresses of the interfaces of this machine. */
  readonly addresses: readonly string[];
}

const DNS_NAME =
  /^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$/;

/** Returns true for a DNS name or an IP address. */
export function isServerName(text: string): boolean {
  return isIP(text) !== 0 || (text.length <= 253 && DNS_NAME.test(text));
}

/** Returns true for an address that stands for all addresses of the machine. */
export function isWildcard(host: string): boolean {
  return host === '0.0.0.0' || host === '::' || host === '[::]';
}

/**
 * Chooses the names of a coordinator: this machine itself, the address that it listens on (for all
 * addresses: those of the interfaces and the host name), and the advertised names.
 */
export function createServerNames(sources: ServerNameSources): ServerNames {
  const { advertise, hostname } = sources;
  const host = sources.host.replace(/^\[(.*)\]$/, '$1');
  const addresses = sources.addresses.filter((address) => isIP(address) !== 0);
  const hosts = isWildcard(host) ? [...addresses, hostname] : [host];
  const names = ['localhost', '127.0.0.1', '::1', ...hosts, ...advertise].filter(isServerName);
  const unique = [...new Set(names)];
  const reachable = addresses.find((address) => isIPv4(address) && !isLoopbackAddress(address));
  const fallback = isWildcard(host) ? (reachable ?? hostname) : host;
  return {
    dnsNames: unique.filter((name) => isIP(name) === 0),
    ipAddresses: unique.filter((name) => isIP(name) !== 0),
    primary: advertise[0] ?? fallback,
  };
}
