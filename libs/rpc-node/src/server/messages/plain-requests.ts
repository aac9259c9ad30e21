import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt';
import type { DescMethod } from '@bufbuild/protobuf';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import { toAsyncIterable } from './error-responses.js';

/** How a stream is sent to a client without a library. */
export type PlainStreamFormat = 'ndjson' | 'sse';

/** One request as Connect gets it: always a POST. */
export interface PostRequest {
  readonly header: Headers;
  /** Present for a GET: the message of the query. */
  readonly queryBody?: AsyncIterable<Uint8Array>;
  /** Present when the response is a stream in a plain format. */
  readonly format?: PlainStreamFormat;
}

const JSON_TYPE = /^application\/json\s*(;|$)/i;
const BINARY_TYPE = 'application/proto';

/** Media types of streams in plain formats. */
const FORMATS: Readonly<Record<string, PlainStreamFormat>> = {
  'application/x-ndjson': 'ndjson',
  'application/ndjson': 'ndjson',
  'text/event-stream': 'sse',
};

/** Returns true for an RPC that a GET may call: it reads, and its request is a single message. */
export function allowsGet(method: DescMethod): boolean {
  return (
    method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS &&
    (method.methodKind === 'unary' || method.methodKind === 'server_streaming')
  );
}

/**
 * Converts a GET, and a request for a stream in a plain format, to the POST that has the same
 * meaning, so that all limits and checks apply alike.
 * @param url - With the query of Connect: `message`, and optionally `encoding` (default json),
 *   `base64`, `compression`. A GET without a message calls with an empty message.
 * @returns Undefined when the RPC does not answer the method of the request.
 * @see https://connectrpc.com/docs/protocol#unary-get-request
 */
export function toPostRequest(
  { method }: Pick<UniversalHandler, 'method'>,
  httpMethod: string,
  url: string,
  header: Headers,
): PostRequest | undefined {
  if (httpMethod === 'POST') return { header, ...pickFormat(method, header) };
  if (httpMethod !== 'GET' || !allowsGet(method)) return undefined;
  const { type, compression, bytes } = readQuery(new URL(url).searchParams);
  const post = new Headers(header);
  post.delete('content-length');
  post.set('content-type', type);
  if (compression === null || compression === 'identity') post.delete('content-encoding');
  else post.set('content-encoding', compression);
  return { header: post, queryBody: toAsyncIterable(bytes), ...pickFormat(method, post) };
}

function readQuery(query: URLSearchParams) {
  const encoding = query.get('encoding') ?? 'json';
  const text = query.get('message') ?? '';
  const isJson = encoding === 'json';
  const bytes = Buffer.from(text, query.get('base64') === '1' ? 'base64url' : 'utf8');
  return {
    type: isJson ? 'application/json' : encoding === 'proto' ? BINARY_TYPE : `unknown/${encoding}`,
    compression: query.get('compression'),
    bytes: isJson && bytes.length === 0 ? Buffer.from('{}') : bytes,
  };
}

/** Returns the first format of the Accept header that this server has, for a request in JSON. */
function pickFormat(method: DescMethod, header: Headers): { readonly format?: PlainStreamFormat } {
  if (method.methodKind !== 'server_streaming' || !JSON_TYPE.test(header.get('content-type') ?? ''))
    return {};
  for (const range of (header.get('accept') ?? '').toLowerCase().split(',')) {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim());
    const format = Object.hasOwn(FORMATS, type) ? FORMATS[type] : undefined;
    if (format !== undefined && !parameters.some((part) => /^q=0(\.0*)?$/.test(part)))
      return { format };
  }
  return {};
}
