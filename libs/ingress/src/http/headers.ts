import { isIPv6 } from 'node:net';

/**
 * Headers of one connection, which a proxy does not pass on.
 * @see RFC 9110, section 7.6.1
 */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate'],
  ...['proxy-authorization', 'te', 'transfer-encoding', 'upgrade', 'http2-settings'],
]);

/**
 * Headers of clients that the endpoint does not receive: those with which a client could pretend to
 * be a proxy, and those that this proxy answers or sets itself.
 */
const NOT_FORWARDED: ReadonlySet<string> = new Set([
  ...['forwarded', 'x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host'],
  ...['x-forwarded-port', 'x-forwarded-server', 'x-forwarded-prefix', 'x-forwarded-by'],
  ...['x-real-ip', 'x-client-ip', 'true-client-ip', 'x-original-url', 'x-rewrite-url'],
  ...['x-request-id', 'expect', 'host', 'forwarded-for', 'x-forwarded', 'x-forwarded-ssl'],
]);

/**
 * Headers that are forwarded although Connection names them: a client must not remove headers on
 * which the endpoint relies.
 */
const KEPT: ReadonlySet<string> = new Set([
  'content-length',
  'content-type',
  'cookie',
  'authorization',
]);

/** What the endpoint receives about the request in headers of this proxy. */
export interface ForwardedFacts {
  /** Address of the client, without port. */
  readonly clientAddress: string;
  readonly protocol: 'http' | 'https';
  /** Host header of the client. */
  readonly authority: string;
  readonly requestId: string;
  /** Span of the request for the header `traceparent`. Undefined: that of the client, if any. */
  readonly trace: string | undefined;
}

/** Headers by lower-case name; several values of one name are a list. */
export type HeaderMap = Record<string, string | string[]>;

/**
 * Returns the headers of a request to an endpoint: those of the client, without the headers of its
 * connection and those of proxies, and the headers of this proxy.
 * @param rawHeaders - Names and values by turns; pseudo-headers are skipped.
 * @see RFC 7239
 */
export function toBackendHeaders(rawHeaders: readonly string[], facts: ForwardedFacts): HeaderMap {
  const headers = collect(rawHeaders, (name) => NOT_FORWARDED.has(name));
  const { clientAddress, protocol, authority, requestId, trace } = facts;
  const forNode = isIPv6(clientAddress) ? `"[${clientAddress}]"` : clientAddress;
  if (listTokens(rawHeaders, 'te').includes('trailers')) headers.te = 'trailers';
  if (Array.isArray(headers.cookie)) headers.cookie = headers.cookie.join('; ');
  return {
    ...headers,
    host: authority,
    forwarded: `for=${forNode};host="${authority}";proto=${protocol}`,
    'x-forwarded-for': clientAddress,
    'x-forwarded-proto': protocol,
    'x-forwarded-host': authority,
    'x-request-id': requestId,
    ...(trace === undefined ? {} : { traceparent: trace }),
  };
}

/** Returns the headers of a response to the client: those of the endpoint, and the request id. */
export function toClientHeaders(rawHeaders: readonly string[], requestId: string): HeaderMap {
  const headers = collect(rawHeaders, (name) => name === 'x-request-id');
  return { ...headers, 'x-request-id': requestId };
}

/** Returns trailers without those that only make sense before a body. */
export function toTrailers(rawTrailers: readonly string[]): HeaderMap {
  return collect(rawTrailers, (name) => name === 'content-length' || name === 'host');
}

/** Returns names and values by turns, from the headers of an HTTP/2 stream. */
export function toRawHeaders(
  headers: Readonly<Record<string, string | readonly string[] | number | undefined>>,
): string[] {
  return Object.entries(headers).flatMap(([name, value]) => {
    if (name.startsWith(':') || value === undefined) return [];
    const values = Array.isArray(value) ? (value as readonly string[]) : [String(value)];
    return values.flatMap((each) => [name, each]);
  });
}

/** Returns true for the content type of a gRPC call, which needs HTTP/2 up to the endpoint. */
export function isGrpc(contentType: string | undefined): boolean {
  return /^application\/grpc(?:$|[+; ])/i.test(contentType ?? '');
}

/**
 * Returns the values of a header, in their order.
 * @param rawHeaders - Names and values by turns.
 * @param name - In lower case.
 */
export function listValues(rawHeaders: readonly string[], name: string): string[] {
  const values: string[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2)
    if (rawHeaders[i]?.toLowerCase() === name) values.push(rawHeaders[i + 1] ?? '');
  return values;
}

/** Returns the elements of a header whose values are lists, in lower case. */
function listTokens(rawHeaders: readonly string[], name: string): string[] {
  return listValues(rawHeaders, name).flatMap((value) =>
    value.split(',').map((token) => token.trim().toLowerCase()),
  );
}

/** Returns the headers that do not belong to one connection and that `skips` does not name. */
function collect(rawHeaders: readonly string[], skips: (name: string) => boolean): HeaderMap {
  const named = new Set(listTokens(rawHeaders, 'connection'));
  const headers: HeaderMap = Object.create(null) as HeaderMap;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]?.toLowerCase() ?? '';
    const value = rawHeaders[i + 1] ?? '';
    const isOfHop = HOP_BY_HOP.has(name) || (named.has(name) && !KEPT.has(name));
    if (name.startsWith(':') || isOfHop || skips(name)) continue;
    const earlier = headers[name];
    if (earlier === undefined) headers[name] = value;
    else headers[name] = [...(Array.isArray(earlier) ? earlier : [earlier]), value];
  }
  return headers;
}
