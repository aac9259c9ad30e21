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
import { ENVELOPE_HEAD_BYTES } from './error-responses.js';
import {
  checkEnvelope,
  createGrpcContext,
  encodeEnvelope,
  parseEnvelope,
  toClientError,
  wrapBytes,
} from './grpc-messages.js';

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
  let envelope: Uint8Array | undefined;
  try {
    const bytes = await readSingle(request.body as AsyncIterable<Uint8Array>);
    const message = await invokeUnaryImplementation(
      spec,
      context,
      parseEnvelope(input, bytes) as never,
      [...interceptors],
    );
    envelope = await compress(encodeEnvelope(output, message as Message), compression);
    context.abort(CALL_ENDED);
  } catch (reason) {
    context.abort(reason);
    setTrailerStatus(trailer, toClientError(reason));
  }
  return { ...uResponseOk, header, trailer, body: new SingleChunk(envelope) };
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

async function compress(
  envelope: Uint8Array,
  compression: Compression | undefined,
): Promise<Uint8Array> {
  const length = envelope.byteLength - ENVELOPE_HEAD_BYTES;
  if (compression === undefined || length < COMPRESS_MIN_BYTES) return envelope;
  const compressed = await compression.compress(
    envelope.subarray(ENVELOPE_HEAD_BYTES) as Uint8Array<ArrayBuffer>,
  );
  return wrapBytes(compressed, compressedFlag);
}

/** A body of one chunk, or of none. For one reader. */
class SingleChunk implements AsyncIterableIterator<Uint8Array> {
  constructor(private chunk: Uint8Array | undefined) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<Uint8Array>> {
    const { chunk } = this;
    this.chunk = undefined;
    return Promise.resolve(
      chunk === undefined ? { done: true, value: undefined } : { done: false, value: chunk },
    );
  }

  return(): Promise<IteratorResult<Uint8Array>> {
    this.chunk = undefined;
    return this.next();
  }
}
