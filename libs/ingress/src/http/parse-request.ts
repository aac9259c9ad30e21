import { normaliseHost } from '../routing/host.js';
import { normalisePath } from '../routing/path.js';
import { listValues } from './headers.js';
import type { Refusal } from './request-refusal.js';

/** The parts of a request that decide about its route. */
export interface ParsedRequest {
  /** Normalised. */
  readonly host: string;
  /** The host as the client wrote it, with its port. */
  readonly authority: string;
  /** Normalised, without the query. */
  readonly path: string;
  /** Path and query as the client wrote them, for the endpoint. */
  readonly target: string;
  /** Size of the first line and the headers, bytes. */
  readonly headerBytes: number;
  readonly hasBody: boolean;
  /** Size of the body as the client announced it; undefined for a body of unknown size. */
  readonly contentLength: number | undefined;
}

/** Input of {@link parseRequest}. Node's requests of HTTP/1.1 and HTTP/2 satisfy this interface. */
export interface RawRequest {
  readonly httpVersionMajor: number;
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** Names and values by turns; pseudo-headers of HTTP/2 included. */
  readonly rawHeaders: readonly string[];
}

const refuse = (reason: string): Refusal => ({ status: 400, reason });

/**
 * Returns host, path and framing of a request; a refusal when two servers could read the request
 * differently.
 * @see RFC 9112, sections 3.2 and 6.3; RFC 9113, section 8.3.1
 */
export function parseRequest(raw: RawRequest): ParsedRequest | Refusal {
  const { method = '', url = '' } = raw;
  if (method === 'CONNECT') return { status: 405, reason: 'CONNECT is not supported' };
  const framing = parseFraming(raw);
  if ('status' in framing) return framing;
  const target = parseTarget(url);
  if (target === undefined) return refuse('the request target is neither a path nor a URL');
  const hostHeaders = listValues(raw.rawHeaders, 'host');
  if (hostHeaders.length > 1) return refuse('there is more than one Host header');
  const authorities = [...hostHeaders, ...listValues(raw.rawHeaders, ':authority')];
  if (target.authority !== undefined) authorities.push(target.authority);
  const [authority] = authorities;
  if (authority === undefined) return refuse('there is no Host header');
  const hosts = new Set(authorities.map(normaliseHost));
  const [host] = hosts;
  if (host === undefined || hosts.has(undefined)) return refuse('the host is malformed');
  if (hosts.size > 1) return refuse('the request names more than one host');
  const path = normalisePath(target.path);
  if (path === undefined)
    return refuse('the path has a malformed encoding, or a segment "." or ".."');
  const headerBytes = raw.rawHeaders.reduce(
    (sum, text) => sum + Buffer.byteLength(text, 'latin1') + 2,
    method.length + Buffer.byteLength(url) + 12,
  );
  return { host, authority, path, target: target.path, headerBytes, ...framing };
}

type Framing = Pick<ParsedRequest, 'hasBody' | 'contentLength'>;

function parseFraming({ httpVersionMajor, rawHeaders }: RawRequest): Framing | Refusal {
  const lengths = listValues(rawHeaders, 'content-length');
  const codings = listValues(rawHeaders, 'transfer-encoding');
  if (lengths.length > 1 || lengths.some((text) => !/^\d{1,15}$/.test(text)))
    return refuse('the Content-Length is malformed');
  if (lengths.length > 0 && codings.length > 0)
    return refuse('the request has both Content-Length and Transfer-Encoding');
  if (codings.length > 1 || codings.some((text) => text.toLowerCase() !== 'chunked'))
    return { status: 501, reason: 'the only supported Transfer-Encoding is chunked' };
  if (httpVersionMajor >= 2 && codings.length > 0) return refuse('HTTP/2 has no Transfer-Encoding');
  const contentLength = lengths[0] === undefined ? undefined : Number(lengths[0]);
  const hasBody = codings.length > 0 || (contentLength ?? 0) > 0;
  return { hasBody, contentLength: hasBody ? contentLength : 0 };
}

/** Splits a target in origin form or absolute form. */
function parseTarget(
  url: string,
): { readonly path: string; readonly authority: string | undefined } | undefined {
  if (url.startsWith('/')) return { path: url, authority: undefined };
  const match = /^https?:\/\/(?<authority>[^/?#]*)(?<path>[/?].*)?$/i.exec(url);
  if (match?.groups === undefined) return undefined;
  const { authority, path = '/' } = match.groups;
  return { authority, path: path.startsWith('?') ? `/${path}` : path };
}
