import { Code, ConnectError } from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import {
  codeToHttpStatus,
  endStreamFlag,
  errorFromJson,
  errorToJson,
} from '@connectrpc/connect/protocol-connect';
import { findTrailerError } from '@connectrpc/connect/protocol-grpc';
import { setGrpcStatus } from './grpc-status.js';

/** Returns the error that the client receives: the same object when nothing changes. */
export type CorrectError = (error: ConnectError) => ConnectError;

/** Flags of the envelope with the trailers in gRPC-Web. */
const GRPC_WEB_TRAILER = 0b1000_0000;
/** 1 byte of flags and 4 bytes of length. */
export const ENVELOPE_HEAD_BYTES = 5;

/** Returns the length of the message that the head of an envelope names. */
export function readEnvelopeLength(head: Uint8Array): number {
  const [second, third, fourth] = [head[2] ?? 0, head[3] ?? 0, head[4] ?? 0];
  return (head[1] ?? 0) * 0x1000000 + ((second << 16) | (third << 8) | fourth);
}

/**
 * Corrects the error of a response of Connect, in the encoding of its protocol. A stream of Connect
 * whose end is compressed is not corrected. Encodes `grpc-message` by {@link setGrpcStatus}.
 */
export async function correctErrorOf(
  response: UniversalServerResponse,
  correct: CorrectError,
): Promise<UniversalServerResponse> {
  const type = response.header?.get('Content-Type') ?? '';
  const { body } = response;
  if (body === undefined) return response;
  if (type.startsWith('application/grpc-web'))
    return { ...response, body: mapChunks(body, (chunk) => correctWebTrailer(chunk, correct)) };
  if (type.startsWith('application/grpc'))
    return { ...response, body: correctTrailer(response, body, correct) };
  if (type.startsWith('application/connect+'))
    return { ...response, body: mapChunks(body, (chunk) => correctConnectEnd(chunk, correct)) };
  return response.status >= 400 ? correctConnectUnary(response, body, correct) : response;
}

/** Corrects the status in the trailers, which are complete when the body has ended. */
function correctTrailer(
  { trailer }: UniversalServerResponse,
  body: AsyncIterable<Uint8Array>,
  correct: CorrectError,
): AsyncIterable<Uint8Array> {
  const correctStatus = (): void => {
    const error = trailer === undefined ? undefined : findTrailerError(trailer);
    if (trailer !== undefined && error !== undefined) setGrpcStatus(trailer, correct(error));
  };
  return {
    [Symbol.asyncIterator]: () => {
      const chunks = body[Symbol.asyncIterator]();
      return {
        next: async () => {
          const item = await chunks.next();
          if (item.done === true) correctStatus();
          return item;
        },
        return: async (value?: unknown) =>
          (await chunks.return?.(value)) ?? { done: true, value: undefined },
      };
    },
  };
}

async function* mapChunks(
  body: AsyncIterable<Uint8Array>,
  map: (chunk: Uint8Array) => Uint8Array,
): AsyncIterable<Uint8Array> {
  for await (const chunk of body) yield map(chunk);
}

function correctWebTrailer(chunk: Uint8Array, correct: CorrectError): Uint8Array {
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
  const error = findTrailerError(fields);
  if (error === undefined) return chunk;
  setGrpcStatus(fields, correct(error));
  return encodeEnvelope(
    GRPC_WEB_TRAILER,
    [...fields].map(([name, value]) => `${name}: ${value}\r\n`).join(''),
  );
}

function correctConnectEnd(chunk: Uint8Array, correct: CorrectError): Uint8Array {
  if (chunk[0] !== endStreamFlag) return chunk;
  const end = JSON.parse(decodeEnvelope(chunk)) as { readonly error?: unknown };
  const error = end.error === undefined ? undefined : parseErrorJson(end.error);
  const corrected = error === undefined ? undefined : correct(error);
  return corrected === undefined || corrected === error
    ? chunk
    : encodeEnvelope(
        endStreamFlag,
        JSON.stringify({ ...end, error: errorToJson(corrected, undefined) }),
      );
}

async function correctConnectUnary(
  response: UniversalServerResponse,
  body: AsyncIterable<Uint8Array>,
  correct: CorrectError,
): Promise<UniversalServerResponse> {
  if (
    response.header?.has('Content-Encoding') ||
    response.header?.get('Content-Type') !== 'application/json'
  )
    return response;
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  const whole = Buffer.concat(chunks);
  const error = parseErrorJson(JSON.parse(whole.toString()));
  const corrected = correct(error);
  if (corrected === error) return { ...response, body: toAsyncIterable(whole) };
  const bytes = Buffer.from(JSON.stringify(errorToJson(corrected, undefined)));
  const header = new Headers(response.header);
  header.set('Content-Length', String(bytes.byteLength));
  const status = codeToHttpStatus(corrected.code);
  return { ...response, status, header, body: toAsyncIterable(bytes) };
}

function parseErrorJson(json: unknown): ConnectError {
  return errorFromJson(
    json as Parameters<typeof errorFromJson>[0],
    undefined,
    new ConnectError('internal error', Code.Internal),
  );
}

/** Returns the content of an envelope. */
export function decodeEnvelope(chunk: Uint8Array): string {
  return Buffer.from(chunk.subarray(ENVELOPE_HEAD_BYTES)).toString();
}

/** Returns an envelope: flags, length, content. */
export function encodeEnvelope(flags: number, content: string | Uint8Array): Uint8Array {
  const data = Buffer.from(content);
  const head = Buffer.alloc(ENVELOPE_HEAD_BYTES);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(data.byteLength, 1);
  return Buffer.concat([head, data]);
}

/** Returns a body of one chunk. */
export async function* toAsyncIterable(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  yield bytes;
}
