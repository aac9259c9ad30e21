import { DNS_LABEL_RULE, isDnsLabel } from '../dns-label.js';

/** A context: the address of a cluster and the default namespace. */
export interface Context {
  /** URL of the coordinator, see {@link checkServer}. Default: `http://127.0.0.1:8080`. */
  readonly server?: string;
  /** Default: `default`. */
  readonly namespace?: string;
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
 * Validates the address of a coordinator: `http` or `https`, with a host and without path, query
 * and user name.
 * @returns The problem; undefined when the address is valid.
 */
export function checkServer(server: string): string | undefined {
  const url = URL.canParse(server) ? new URL(server) : undefined;
  const isBaseUrl =
    url !== undefined &&
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    url.pathname === '/' &&
    url.search === '';
  return isBaseUrl && url.hostname !== '' && url.username === ''
    ? undefined
    : `expected an address such as http://127.0.0.1:8080, got ${JSON.stringify(server)}`;
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
