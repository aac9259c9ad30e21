import { constants } from 'node:http2';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import type { Clock, Log } from '@cloudless/base';
import type { AnyRequest, AnyResponse } from './http-types.js';

export interface BodyTimeoutSettings {
  readonly clock: Clock;
  readonly log: Log;
  readonly bodyTimeoutMs: number;
}

/**
 * The body of a request. Connect stops reading when it refuses a message. By default Node would
 * then destroy the request, which blocks an HTTP/1.1 connection for later requests.
 */
export function toRequestBody(request: AnyRequest): AsyncIterable<Uint8Array> {
  return { [Symbol.asyncIterator]: () => request.iterator({ destroyOnReturn: false }) };
}

/**
 * Closes a request whose body is not complete in time. The time runs from the head of the request
 * when the client sends one message, or else from the end of the response. Body bytes after the
 * response are discarded: a client that is cut off while it sends may never read its response.
 */
export function enforceBodyTimeout(
  settings: BodyTimeoutSettings,
  { method }: UniversalHandler,
  request: AnyRequest,
  response: AnyResponse,
): void {
  const startTimer = (): void => {
    const timer = settings.clock.setTimer(settings.bodyTimeoutMs, () => {
      settings.log.debug('request body timed out', { rpc: method.name });
      if ('stream' in request) request.stream.close(constants.NGHTTP2_CANCEL);
      else request.socket.destroy();
    });
    const stop = (): void => timer.cancel();
    request.once('end', stop);
    response.once('close', stop);
  };
  if (!isClientStreaming(method)) startTimer();
  const answered = 'stream' in request ? request.stream : response;
  answered.once('finish', () => {
    if (request.readableEnded) return;
    discardBody(request);
    if (isClientStreaming(method)) startTimer();
  });
}

/**
 * Delays the end of an HTTP/1.1 response until its request is complete. Node closes a connection
 * without keep-alive right after the response, while a refused client may still be sending.
 */
export async function* endAfterRequestBody(
  body: AsyncIterable<Uint8Array>,
  { method }: UniversalHandler,
  request: AnyRequest,
): AsyncIterable<Uint8Array> {
  yield* body;
  if (
    'stream' in request ||
    request.readableEnded ||
    request.destroyed ||
    isClientStreaming(method)
  )
    return;
  await new Promise<void>((resolve) => {
    request.once('end', resolve).once('close', resolve);
    discardBody(request);
  });
}

function isClientStreaming(method: UniversalHandler['method']): boolean {
  return method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming';
}

function discardBody(request: AnyRequest): void {
  request.removeAllListeners('readable').on('data', () => undefined);
  request.resume();
}
