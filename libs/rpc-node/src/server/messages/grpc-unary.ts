import type { Message } from '@bufbuild/protobuf';
import { Code, ConnectError, type Interceptor, type MethodImplSpec } from '@connectrpc/connect';
import {
  compressedFlag,
  compressionNegotiate,
  invokeUnaryImplementation,
  uResponseOk,
  type Compression,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import { setTrailerStatus } from '@connectrpc/connect/protocol-grpc';
import { CALL_ENDED } from '../transport/abortable-call.js';
import { COMPRESSIONS, COMPRESS_MIN_BYTES } from './compressions.js';
import {
  checkEnvelope,
  createGrpcContext,
  createHead,
  encodeMessage,
  parseEnvelope,
  toClientError,
  wrapBytes,
} from './grpc-messages.js';

/**
 * Size from which a response is written behind its head without a copy, bytes. V8 collects the whole
 * heap after some megabytes outside of the heap, which takes long in a large cluster.
 */
const MIN_UNCOPIED_BYTES = 4_096;

/** A unary call, with the interceptors around its implementation; the first is the outermost. */
export interface UnaryCall {
  readonly handler: UniversalHandler;
  readonly spec: MethodImplSpec & { readonly kind: 'unary' };
  readonly interceptors: readonly Interceptor[];
  /** Deadline of the client. */
  readonly timeoutMs: number | undefined;
}

/**
 * Serves a unary call in binary gRPC whose request is not compressed. Connect makes ten generator
 * functions for a call. V8 holds each of them, with all that its call has reached, until the next
 * collection of the old generation.
 */
export async function serveUnary(
  { handler, spec, interceptors, timeoutMs }: UnaryCall,
  request: UniversalServerRequest,
): Promise<UniversalServerResponse> {
  const { input, output } = handler.method;
  const context = createGrpcContext(handler, request, timeoutMs);
  const { responseHeader: header, responseTrailer: trailer } = context;
  const compression = pickCompression(request.header);
  if (compression !== undefined) header.set('grpc-encoding', compression.name);
  let chunks: readonly Uint8Array[] = [];
  try {
    const bytes = await readSingle(request.body as AsyncIterable<Uint8Array>);
    const message = await invokeUnaryImplementation(
      spec,
      context,
      parseEnvelope(input, bytes) as never,
      [...interceptors],
    );
    chunks = await toChunks(encodeMessage(output, message as Message), compression);
    context.abort(CALL_ENDED);
  } catch (reason) {
    context.abort(reason);
    setTrailerStatus(trailer, toClientError(reason));
  }
  return { ...uResponseOk, header, trailer, body: new Chunks(chunks) };
}

function pickCompression(header: Headers): Compression | undefined {
  const name = 'grpc-accept-encoding';
  return (
    compressionNegotiate([...COMPRESSIONS], null, header.get(name), name).response ?? undefined
  );
}

/**
 * @returns The only message of a request, in its envelope.
 * @throws ConnectError UNIMPLEMENTED at no message or two; INVALID_ARGUMENT at an incomplete second
 *   one.
 */
async function readSingle(body: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const envelopes = body[Symbol.asyncIterator]();
  const first = await envelopes.next();
  if (first.done === true)
    throw new ConnectError(
      'protocol error: missing input message for unary method',
      Code.Unimplemented,
    );
  const second = await envelopes.next();
  if (second.done === true) return first.value;
  await envelopes.return?.();
  checkEnvelope(second.value);
  throw new ConnectError(
    'protocol error: received extra input message for unary method',
    Code.Unimplemented,
  );
}

/** Returns the chunks of a response, which are its message in an envelope. */
async function toChunks(
  message: Uint8Array,
  compression: Compression | undefined,
): Promise<readonly Uint8Array[]> {
  if (compression !== undefined && message.byteLength >= COMPRESS_MIN_BYTES)
    return [
      wrapBytes(await compression.compress(message as Uint8Array<ArrayBuffer>), compressedFlag),
    ];
  return message.byteLength < MIN_UNCOPIED_BYTES
    ? [wrapBytes(message)]
    : [createHead(message.byteLength), message];
}

/** A body of some chunks, or of none. For one reader. */
class Chunks implements AsyncIterableIterator<Uint8Array> {
  constructor(private rest: readonly Uint8Array[]) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<Uint8Array>> {
    const [value, ...rest] = this.rest;
    this.rest = rest;
    return Promise.resolve(
      value === undefined ? { done: true, value: undefined } : { done: false, value },
    );
  }

  return(): Promise<IteratorResult<Uint8Array>> {
    this.rest = [];
    return this.next();
  }
}
