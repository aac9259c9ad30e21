import { isIP } from 'node:net';

/** Key of routes without hosts, and of their certificates. No host has this name. */
export const EVERY_HOST = '*';

/** Longest name of a host, bytes. RFC 1035, section 2.3.4, without the last dot. */
const MAX_NAME_LENGTH = 253;
const NAME =
  /^(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/**
 * Returns the host of a Host header or `:authority` in one spelling: lower case, without port and
 * without the last dot. IPv6 addresses keep their brackets.
 * @returns Undefined for text that is no host, such as one with user information or spaces.
 * @see RFC 3986, section 3.2.2
 */
export function normaliseHost(authority: string): string | undefined {
  const match = /^(?<host>\[[0-9a-fA-F:.]+\]|[^:[\]]+)(?::(?<port>\d{0,5}))?$/.exec(authority);
  const { host = '', port = '' } = match?.groups ?? {};
  if (host === '' || Number(port) > 65_535) return undefined;
  const lower = host.toLowerCase();
  if (lower.startsWith('[')) return isIP(lower.slice(1, -1)) === 6 ? lower : undefined;
  const name = lower.endsWith('.') ? lower.slice(0, -1) : lower;
  return name.length <= MAX_NAME_LENGTH && NAME.test(name) ? name : undefined;
}

/** Returns the wildcard that covers a host, such as "*.example.com"; undefined for a single label. */
export function toWildcard(host: string): string | undefined {
  const dot = host.indexOf('.');
  return dot < 0 || isIP(host) !== 0 || host.startsWith('[') ? undefined : `*${host.slice(dot)}`;
}
