import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import {
  codeFromString,
  codeToHttpStatus,
  endStreamFlag,
} from '@connectrpc/connect/protocol-connect';
import { Code } from '@connectrpc/connect';
import { decodeEnvelope, encodeEnvelope, toAsyncIterable } from './error-responses.js';
import type { InspectedRequest } from './inspect-body.js';
import type { PlainStreamFormat } from './plain-requests.js';

/**
 * Converts the request of a stream from plain JSON to the streaming protocol of Connect. An empty
 * body is an empty message.
 */
export function toConnectStream({ header, body }: InspectedRequest): InspectedRequest {
  const streamHeader = new Headers(header);
  streamHeader.set('content-type', 'application/connect+json');
  for (const name of ['content-length', 'connect-accept-encoding', 'connect-content-encoding'])
    streamHeader.delete(name);
  return { header: streamHeader, body: envelopeWhole(body) };
}

async function* envelopeWhole(body: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  yield encodeEnvelope(0, chunks.length === 0 ? '{}' : Buffer.concat(chunks));
}

/** The last envelope of a stream of Connect. */
interface StreamEnd {
  readonly error?: { readonly code?: string };
  readonly metadata?: Readonly<Record<string, readonly string[]>>;
}

const FORMAT_TYPES: Readonly<Record<PlainStreamFormat, string>> = {
  ndjson: 'application/x-ndjson',
  sse: 'text/event-stream',
};

/**
 * Converts a stream of Connect in JSON to lines or server-sent events.
 *
 * - `ndjson`: each message is one line of JSON. An error is the last line, `{"error":{…}}`, with
 *   `code`, `message` and `details` as in the error of a unary call.
 * - `sse`: each message is the data of an event without a name. The last event is `failure`, with
 *   the error as its data, or `end` with `{}`.
 *
 * A stream that fails before its first message is a unary error response with an HTTP status.
 */
export async function toPlainStream(
  response: UniversalServerResponse,
  format: PlainStreamFormat,
): Promise<UniversalServerResponse> {
  if (response.body === undefined) return response;
  const chunks = response.body[Symbol.asyncIterator]();
  const first = await chunks.next();
  const end = first.done === true ? {} : readEnd(first.value);
  if (end?.error !== undefined) {
    await chunks.return?.();
    return toErrorResponse(end);
  }
  const header = new Headers(response.header);
  header.set('Content-Type', FORMAT_TYPES[format]);
  header.set('Cache-Control', 'no-store');
  // Proxies such as nginx would hold the messages back.
  header.set('X-Accel-Buffering', 'no');
  return { ...response, header, body: encodeChunks(first, chunks, format) };
}

async function* encodeChunks(
  first: IteratorResult<Uint8Array>,
  chunks: AsyncIterator<Uint8Array>,
  format: PlainStreamFormat,
): AsyncIterable<Uint8Array> {
  try {
    for (let item = first; item.done !== true; item = await chunks.next()) {
      const end = readEnd(item.value);
      const text =
        end === undefined
          ? encodeMessage(decodeEnvelope(item.value), format)
          : encodeEnd(end, format);
      if (text !== '') yield Buffer.from(text);
    }
  } finally {
    await chunks.return?.();
  }
}

/** JSON of protobuf contains no line breaks outside of escapes. */
function encodeMessage(json: string, format: PlainStreamFormat): string {
  return format === 'ndjson' ? `${json}\n` : `data: ${json}\n\n`;
}

function encodeEnd({ error }: StreamEnd, format: PlainStreamFormat): string {
  if (format === 'ndjson') return error === undefined ? '' : `${JSON.stringify({ error })}\n`;
  const [name, data] = error === undefined ? ['end', {}] : ['failure', error];
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Returns undefined for a chunk that is a message. */
function readEnd(chunk: Uint8Array): StreamEnd | undefined {
  return ((chunk[0] ?? 0) & endStreamFlag) === 0
    ? undefined
    : (JSON.parse(decodeEnvelope(chunk)) as StreamEnd);
}

function toErrorResponse({ error, metadata = {} }: StreamEnd): UniversalServerResponse {
  const body = Buffer.from(JSON.stringify(error));
  const header = new Headers({
    'Content-Type': 'application/json',
    'Content-Length': String(body.byteLength),
  });
  for (const [name, values] of Object.entries(metadata))
    for (const value of values) header.append(name, value);
  const status = codeToHttpStatus(codeFromString(error?.code ?? '') ?? Code.Unknown);
  return { status, header, body: toAsyncIterable(body) };
}
