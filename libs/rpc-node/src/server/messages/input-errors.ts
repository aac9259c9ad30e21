import type { DescMessage } from '@bufbuild/protobuf';
import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import type {
  UniversalHandler,
  UniversalHandlerFn,
  UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import { explainEnumError } from './enum-errors.js';

/**
 * Corrects the errors of Connect about malformed messages. Connect answers INTERNAL to invalid
 * binary protobuf, and the error passes no interceptor; the response is therefore rewritten to
 * INVALID_ARGUMENT with the message type. Connect answers INVALID_ARGUMENT to an unknown enum value
 * in JSON; the name of the field is added.
 */
export function withInputErrors(handler: UniversalHandler): UniversalHandlerFn {
  const rewrite: RewriteMessage = (code, message) =>
    rewriteMessage(handler.method.input, code, message);
  return async (request) => {
    const response = await handler(request);
    const type = response.header?.get('Content-Type') ?? '';
    if (response.body === undefined) return response;
    if (type.startsWith('application/grpc-web'))
      return {
        ...response,
        body: mapChunks(response.body, (chunk) => rewriteGrpcWebTrailer(chunk, rewrite)),
      };
    if (type.startsWith('application/grpc'))
      return { ...response, body: rewriteGrpcTrailer(response, response.body, rewrite) };
    if (type.startsWith('application/connect+'))
      return {
        ...response,
        body: mapChunks(response.body, (chunk) => rewriteConnectEnd(chunk, rewrite)),
      };
    return response.status === 500 || response.status === 400
      ? rewriteConnectUnary(response, response.body, rewrite)
      : response;
  };
}

/**
 * Makes the same corrections for client streams, whose messages Connect parses while the handler
 * reads them. Must come before interceptors that log internal errors.
 */
export const inputErrorInterceptor: Interceptor = (next) => (request) => {
  if (!request.stream) return next(request);
  const { input } = request.method;
  return next({ ...request, message: withParseErrors(request.message, input) });
};

async function* withParseErrors<Item>(
  messages: AsyncIterable<Item>,
  input: DescMessage,
): AsyncGenerator<Item> {
  try {
    yield* messages;
  } catch (reason) {
    const { code, rawMessage } = ConnectError.from(reason);
    const message =
      reason instanceof ConnectError ? rewriteMessage(input, code, rawMessage) : undefined;
    throw message === undefined
      ? reason
      : new ConnectError(message, Code.InvalidArgument, undefined, undefined, reason);
  }
}

function rewriteMessage(input: DescMessage, code: Code, message: string): string | undefined {
  if (code === Code.InvalidArgument) return explainEnumError(input, message);
  return code === Code.Internal && message.startsWith(CONNECT_PREFIX)
    ? `not a valid ${input.typeName} in the binary format: ${message.slice(CONNECT_PREFIX.length)}`
    : undefined;
}

/**
 * Start of the message of `@connectrpc/connect` about invalid binary protobuf
 * (`protocol/serialization.js`).
 */
const CONNECT_PREFIX = 'parse binary: ';

/** Returns the corrected error message; undefined for an error that needs no correction. */
type RewriteMessage = (code: Code, message: string) => string | undefined;

/**
 * Flags of the envelope that ends a stream in Connect. A compressed envelope has other flags and is
 * not rewritten.
 */
const CONNECT_END = 0b10;
/** Flags of the envelope with the trailers in gRPC-Web. */
const GRPC_WEB_TRAILER = 0b1000_0000;
/** 1 byte of flags and 4 bytes of length. */
const ENVELOPE_HEAD_BYTES = 5;

/** Rewrites the status in the trailers, which are complete when the body has ended. */
async function* rewriteGrpcTrailer(
  response: UniversalServerResponse,
  body: AsyncIterable<Uint8Array>,
  rewrite: RewriteMessage,
): AsyncIterable<Uint8Array> {
  yield* body;
  const { trailer } = response;
  if (trailer === undefined) return;
  const message = rewrite(
    Number(trailer.get('grpc-status')),
    decodeURIComponent(trailer.get('grpc-message') ?? ''),
  );
  if (message === undefined) return;
  trailer.set('grpc-status', String(Code.InvalidArgument));
  trailer.set('grpc-message', encodeURIComponent(message));
}

async function* mapChunks(
  body: AsyncIterable<Uint8Array>,
  map: (chunk: Uint8Array) => Uint8Array,
): AsyncIterable<Uint8Array> {
  for await (const chunk of body) yield map(chunk);
}

function rewriteGrpcWebTrailer(chunk: Uint8Array, rewrite: RewriteMessage): Uint8Array {
  if (chunk[0] !== GRPC_WEB_TRAILER) return chunk;
  const fields = new Headers(
    decodeEnvelope(chunk)
      .split('\r\n')
      .filter((line) => line.includes(':'))
      .map((line): [string, string] => [
        line.slice(0, line.indexOf(':')),
        line.slice(line.indexOf(':') + 1).trim(),
      ]),
  );
  const message = rewrite(
    Number(fields.get('grpc-status')),
    decodeURIComponent(fields.get('grpc-message') ?? ''),
  );
  if (message === undefined) return chunk;
  fields.set('grpc-status', String(Code.InvalidArgument));
  fields.set('grpc-message', encodeURIComponent(message));
  return encodeEnvelope(
    GRPC_WEB_TRAILER,
    [...fields].map(([name, value]) => `${name}: ${value}\r\n`).join(''),
  );
}

function rewriteConnectEnd(chunk: Uint8Array, rewrite: RewriteMessage): Uint8Array {
  if (chunk[0] !== CONNECT_END) return chunk;
  const end = JSON.parse(decodeEnvelope(chunk)) as { readonly error?: ConnectErrorJson };
  const error = end.error === undefined ? undefined : rewriteErrorJson(end.error, rewrite);
  return error === undefined
    ? chunk
    : encodeEnvelope(CONNECT_END, JSON.stringify({ ...end, error }));
}

async function rewriteConnectUnary(
  response: UniversalServerResponse,
  body: AsyncIterable<Uint8Array>,
  rewrite: RewriteMessage,
): Promise<UniversalServerResponse> {
  if (
    response.header?.has('Content-Encoding') ||
    response.header?.get('Content-Type') !== 'application/json'
  )
    return response;
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  const whole = Buffer.concat(chunks);
  const error = rewriteErrorJson(JSON.parse(whole.toString()) as ConnectErrorJson, rewrite);
  if (error === undefined) return { ...response, body: toAsyncIterable(whole) };
  const bytes = Buffer.from(JSON.stringify(error));
  const header = new Headers(response.header);
  header.set('Content-Length', String(bytes.byteLength));
  return { ...response, status: 400, header, body: toAsyncIterable(bytes) };
}

/** Codes of errors that may need a correction, by their names in the JSON of Connect. */
const JSON_CODES: Readonly<Record<string, Code>> = {
  internal: Code.Internal,
  invalid_argument: Code.InvalidArgument,
};

interface ConnectErrorJson {
  readonly code?: string;
  readonly message?: string;
}

function rewriteErrorJson(
  error: ConnectErrorJson,
  rewrite: RewriteMessage,
): ConnectErrorJson | undefined {
  const code = JSON_CODES[error.code ?? ''];
  const message = code === undefined ? undefined : rewrite(code, error.message ?? '');
  return message === undefined ? undefined : { ...error, code: 'invalid_argument', message };
}

function decodeEnvelope(chunk: Uint8Array): string {
  return Buffer.from(chunk.subarray(ENVELOPE_HEAD_BYTES)).toString();
}

function encodeEnvelope(flags: number, content: string): Uint8Array {
  const data = Buffer.from(content);
  const head = Buffer.alloc(ENVELOPE_HEAD_BYTES);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(data.byteLength, 1);
  return Buffer.concat([head, data]);
}

async function* toAsyncIterable(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  yield bytes;
}
