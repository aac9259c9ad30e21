import { constants, type Http2ServerRequest } from 'node:http2';
import { finished, type Readable } from 'node:stream';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import {
  NOT_READY,
  STREAM_END,
  toIteratorResult,
  type ReadyItems,
  type Taken,
} from '@cloudless/api';
import type { Clock, Log } from '@cloudless/base';
import type { AnyRequest, AnyResponse } from './http-types.js';

/** Settings of {@link enforceBodyTimeout}. */
export interface BodyTimeoutSettings {
  readonly clock: Clock;
  readonly log: Log;
  /** As in `RpcLimits`. */
  readonly bodyTimeoutMs: number;
}

/**
 * Returns the body of a request. Reading may stop early without destroying the request: Connect
 * stops when it refuses a message, and a destroyed request would block an HTTP/1.1 connection for
 * later requests.
 */
export function toRequestBody(request: AnyRequest): AsyncIterable<Uint8Array> {
  return {
    [Symbol.asyncIterator]: () =>
      'stream' in request
        ? new RequestChunks(request)
        : (request.iterator({ destroyOnReturn: false }) as AsyncIterator<Uint8Array>),
  };
}

const END: IteratorReturnResult<undefined> = { done: true, value: undefined };

/**
 * The chunks of an HTTP/2 request, as the iterator of the request yields them when it does not
 * destroy the request. They can be taken without a promise for each.
 */
class RequestChunks implements ReadyItems<Uint8Array> {
  readonly canTake = true;
  /** Undefined until the request has ended or failed. */
  private end: { readonly error?: unknown } | undefined;
  private removeListeners: (() => void) | undefined;
  private listener: (() => void) | undefined;

  constructor(private readonly request: Http2ServerRequest) {}

  take(): Taken<Uint8Array> {
    const { request } = this;
    this.removeListeners ??= this.addListeners();
    const chunk = request.destroyed ? null : (request.read() as Uint8Array | null);
    if (chunk !== null) return chunk;
    if (this.end === undefined) return NOT_READY;
    const { error } = this.end;
    this.close();
    if (error !== undefined) throw error;
    return STREAM_END;
  }

  onReady(listener: () => void): void {
    this.listener = listener;
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    for (;;) {
      const item = this.take();
      if (item !== NOT_READY) return toIteratorResult(item);
      await new Promise<void>((resolve) => this.onReady(resolve));
    }
  }

  return(): Promise<IteratorResult<Uint8Array>> {
    this.removeListeners ??= () => undefined;
    this.close();
    return Promise.resolve(END);
  }

  private addListeners(): () => void {
    const { request } = this;
    const notify = (): void => {
      const { listener } = this;
      this.listener = undefined;
      listener?.();
    };
    request.on('readable', notify);
    const stopWaiting = finished(request as Readable, { writable: false }, (error) => {
      this.end = (error ?? undefined) === undefined ? {} : { error };
      notify();
    });
    return () => {
      request.off('readable', notify);
      stopWaiting();
    };
  }

  private close(): void {
    this.end = {};
    this.removeListeners?.();
    this.removeListeners = () => undefined;
  }
}

/**
 * Closes a request whose body is not complete in time. The time runs from the head of the request,
 * or for a client stream from the end of the response. Bytes after the response are discarded,
 * because a client whose connection closes while it sends may never read the response.
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
  const responseStream = 'stream' in request ? request.stream : response;
  responseStream.once('finish', () => {
    if (request.readableEnded) return;
    discardBody(request);
    if (isClientStreaming(method)) startTimer();
  });
}

/**
 * Delays the end of an HTTP/1.1 response until its request is complete. Otherwise Node would close
 * a connection without keep-alive while a refused client is still sending.
 */
export function endAfterRequestBody(
  body: AsyncIterable<Uint8Array>,
  { method }: UniversalHandler,
  request: AnyRequest,
): AsyncIterable<Uint8Array> {
  return 'stream' in request || isClientStreaming(method) ? body : endAfterRequest(body, request);
}

async function* endAfterRequest(
  body: AsyncIterable<Uint8Array>,
  request: AnyRequest,
): AsyncIterable<Uint8Array> {
  yield* body;
  if (request.readableEnded || request.destroyed) return;
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
