import { DNS_LABEL_RULE, isDnsLabel } from '../dns-label.js';
import { MAX_SERVERS } from './server-list.js';

/** A context: the address of a cluster and the default namespace. */
export interface Context {
  /**
   * URL of the coordinator, or the URLs of several, see {@link checkServer}. Default:
   * `http://127.0.0.1:8080`.
   */
  readonly server?: string;
  /** Default: `default`. */
  readonly namespace?: string;
  /**
   * Directory of the identity that `cloudlessctl login` has stored. This and the other paths are
   * relative to the directory of the configuration file.
   */
  readonly identityDir?: string;
  /** File with a bearer token, instead of an identity. */
  readonly tokenFile?: string;
  /** File with the root certificates to trust in PEM. Default: the root that the token names. */
  readonly caFile?: string;
}

/** The content of the configuration file. */
export interface Contexts {
  /** Path of the file; the file may not exist. */
  readonly path: string;
  /** Name of the current context. The file may not contain this context. */
  readonly current?: string;
  /** The contexts by name. */
  readonly contexts: ReadonlyMap<string, Context>;
}

/**
 * Validates the address of a coordinator: `http` or `https`, with a host, and without user name,
 * password, path, query and fragment. Several addresses of one cluster are separated by commas.
 * @returns The problem; undefined when the address is valid.
 */
export function checkServer(server: string): string | undefined {
  const addresses = server.split(',').map((address) => address.trim());
  if (addresses.length > MAX_SERVERS)
    return `expected at most ${MAX_SERVERS} addresses, got ${addresses.length}`;
  for (const address of addresses) {
    const problem = checkAddress(address);
    if (problem !== undefined) return problem;
  }
  const schemes = new Set(addresses.map((address) => new URL(address).protocol));
  return schemes.size === 1
    ? undefined
    : 'expected addresses with https:// or with http://, not both: a cluster has one of the two';
}

function checkAddress(server: string): string | undefined {
  const url = URL.canParse(server) ? new URL(server) : undefined;
  const isHttp = url?.protocol === 'http:' || url?.protocol === 'https:';
  if (url === undefined || !isHttp || url.hostname === '')
    return `expected an address such as http://127.0.0.1:8080, got ${JSON.stringify(server)}`;
  // The message does not repeat the address, which may contain a password.
  if (url.username !== '' || url.password !== '')
    return `expected an address without a user name and password, such as ${url.origin}`;
  const extra = findExtraPart(server, url);
  return extra === undefined
    ? undefined
    : `expected an address without a ${extra}, such as ${url.origin}, got ${JSON.stringify(server)}`;
}

/** Returns the name of the first part after the port; undefined when there is none. */
function findExtraPart(server: string, url: URL): string | undefined {
  if (url.pathname !== '/') return 'path';
  // The class URL has neither a query for "?" alone nor a fragment for "#" alone.
  if (/^[^#]*\?/.test(server)) return 'query';
  return server.includes('#') ? 'fragment' : undefined;
}

/**
 * Validates the name of a namespace.
 * @returns The problem; undefined when the name is valid.
 */
export function checkNamespace(namespace: string): string | undefined {
  return isDnsLabel(namespace)
    ? undefined
    : `expected ${DNS_LABEL_RULE}, got ${JSON.stringify(namespace)}`;
}
