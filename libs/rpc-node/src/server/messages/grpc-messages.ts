import { create, toBinary, type DescMessage, type Message } from '@bufbuild/protobuf';
import {
  Code,
  ConnectError,
  createContextValues,
  createHandlerContext,
  type HandlerContext,
} from '@connectrpc/connect';
import type { UniversalHandler, UniversalServerRequest } from '@connectrpc/connect/protocol';
import { decodeMessage } from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import { ENVELOPE_HEAD_BYTES, readEnvelopeLength } from './error-responses.js';

/** The context of a call, which can be aborted. */
type GrpcContext = ReturnType<typeof createHandlerContext> & HandlerContext;

/**
 * Creates the context of a call in binary gRPC. Without a deadline its signal is that of the
 * request, and `abort` has no effect: the outermost interceptor gives the call a signal of its own.
 * The context of Connect would add two abort controllers and a copy of the headers to every call.
 * @param timeoutMs - Deadline of the client. Default: none.
 */
export function createGrpcContext(
  { method, service }: UniversalHandler,
  request: UniversalServerRequest,
  timeoutMs?: number,
): GrpcContext {
  const { method: requestMethod, signal, header: requestHeader, url, contextValues } = request;
  const call = { method, service, protocolName: 'grpc', requestMethod, requestHeader, url };
  const responseHeader = { 'Content-Type': 'application/grpc+proto' };
  const responseTrailer = { 'Grpc-Status': '0' };
  if (timeoutMs !== undefined)
    return createHandlerContext({
      ...{ ...call, timeoutMs, requestSignal: signal, responseHeader, responseTrailer },
      ...definedFields({ contextValues }),
    });
  return {
    ...{ ...call, signal, timeoutMs: () => undefined, abort: () => undefined },
    responseHeader: new Headers(responseHeader),
    responseTrailer: new Headers(responseTrailer),
    values: contextValues ?? createContextValues(),
  };
}

/**
 * Parses a message without compression in its envelope.
 * @throws ConnectError INVALID_ARGUMENT when the envelope is not complete; INTERNAL when the bytes
 *   are no such message, as in Connect: `withInputErrors` and `inputErrorInterceptor` correct that.
 */
export function parseEnvelope(schema: DescMessage, envelope: Uint8Array): Message {
  checkEnvelope(envelope);
  try {
    return decodeMessage(schema, envelope, ENVELOPE_HEAD_BYTES);
  } catch (reason) {
    const text = reason instanceof Error ? reason.message : String(reason);
    throw new ConnectError(`parse binary: ${text}`, Code.Internal);
  }
}

/** @throws ConnectError INVALID_ARGUMENT when the head or a part of the message is missing. */
export function checkEnvelope(envelope: Uint8Array): void {
  const length = envelope.byteLength - ENVELOPE_HEAD_BYTES;
  if (length < 0 || readEnvelopeLength(envelope) !== length)
    throw new ConnectError('protocol error: incomplete envelope', Code.InvalidArgument);
}

/**
 * Encodes a message.
 * @param message - May be an object with some fields of a message, as Connect allows.
 */
export function encodeMessage(schema: DescMessage, message: Message): Uint8Array {
  return toBinary(schema, create(schema, message));
}

/** Encodes a message behind its flags and its length, see {@link encodeMessage}. */
export function encodeEnvelope(schema: DescMessage, message: Message): Uint8Array {
  return wrapBytes(encodeMessage(schema, message));
}

/**
 * Returns a copy of an encoded message behind its flags and its length.
 * @param flags - Default 0: no compression.
 */
export function wrapBytes(bytes: Uint8Array, flags = 0): Uint8Array {
  const envelope = Buffer.allocUnsafe(ENVELOPE_HEAD_BYTES + bytes.byteLength);
  envelope.set(bytes, ENVELOPE_HEAD_BYTES);
  return fillHead(envelope, flags);
}

/**
 * Returns flags and length of an encoded message that follows in chunks of its own.
 * @param length - Bytes of the message.
 */
export function createHead(length: number): Uint8Array {
  return writeHead(Buffer.allocUnsafe(ENVELOPE_HEAD_BYTES), length, 0);
}

/** Writes flags and length into the first bytes of an envelope, whose message is complete. */
export function fillHead(envelope: Uint8Array, flags = 0): Uint8Array {
  return writeHead(envelope, envelope.byteLength - ENVELOPE_HEAD_BYTES, flags);
}

function writeHead(envelope: Uint8Array, length: number, flags: number): Uint8Array {
  envelope[0] = flags;
  envelope[1] = length >>> 24;
  envelope[2] = length >>> 16;
  envelope[3] = length >>> 8;
  envelope[4] = length;
  return envelope;
}

/** Returns the error that a client receives for what a handler has thrown. */
export function toClientError(reason: unknown): ConnectError {
  return reason instanceof ConnectError
    ? reason
    : new ConnectError('internal error', Code.Internal, undefined, undefined, reason);
}
