import { constants } from 'node:http2';
import type { Clock, Log } from '@cloudless/base';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import type { AnyRequest, AnyResponse } from './http-types.js';

/** What {@link limitUpload} needs. */
export interface UploadLimit {
  readonly clock: Clock;
  readonly log: Log;
  readonly bodyTimeoutMs: number;
}

/**
 * The body of a request. Connect stops reading it when it refuses a message; that must not destroy
 * the request, as Node does by default: in HTTP/1.1 it would wedge the connection.
 */
export function bodyOf(request: AnyRequest): AsyncIterable<Uint8Array> {
  return { [Symbol.asyncIterator]: () => request.iterator({ destroyOnReturn: false }) };
}

/**
 * Cuts a request whose body is not complete in time: from its head where the client sends one
 * message, else from the end of the answer. What comes after the answer is dropped: a client that
 * is cut while it sends may never read its answer.
 */
export function limitUpload(
  limit: UploadLimit,
  { method }: UniversalHandler,
  request: AnyRequest,
  response: AnyResponse,
): void {
  const startTimer = (): void => {
    const timer = limit.clock.setTimer(limit.bodyTimeoutMs, () => {
      limit.log.debug('request body came too slowly', { rpc: method.name });
      if ('stream' in request) request.stream.close(constants.NGHTTP2_CANCEL);
      else request.socket.destroy();
    });
    const stop = (): void => timer.cancel();
    request.once('end', stop);
    response.once('close', stop);
  };
  if (!clientStreams(method)) startTimer();
  const answered = 'stream' in request ? request.stream : response;
  answered.once('finish', () => {
    if (request.readableEnded) return;
    drop(request);
    if (clientStreams(method)) startTimer();
  });
}

/**
 * Delays the end of an answer in HTTP/1.1 until its request is complete: Node closes a connection
 * that is not kept alive right after the answer, while a client that was refused may still be
 * sending.
 */
export async function* endAfterUpload(
  body: AsyncIterable<Uint8Array>,
  { method }: UniversalHandler,
  request: AnyRequest,
): AsyncIterable<Uint8Array> {
  yield* body;
  if ('stream' in request || request.readableEnded || request.destroyed || clientStreams(method))
    return;
  await new Promise<void>((resolve) => {
    request.once('end', resolve).once('close', resolve);
    drop(request);
  });
}

function clientStreams(method: UniversalHandler['method']): boolean {
  return method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming';
}

function drop(request: AnyRequest): void {
  request.removeAllListeners('readable').on('data', () => undefined);
  request.resume();
}
