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
 * The chunks of an HTTP/2 request, which can be taken without a promise for each. Reads the HTTP/2
 * stream itself: the request of Node.js is a second stream on top, which would schedule three
 * callbacks for each chunk.
 */
class RequestChunks implements ReadyItems<Uint8Array> {
  readonly canTake = true;
  /** The next chunk. */
  private chunk: Uint8Array | undefined;
  /** The chunks after the next one, while the reader is slower than the client. */
  private readonly laterChunks: Uint8Array[] = [];
  private unreadBytes = 0;
  private isPaused = false;
  /** Undefined until the request has ended or failed. */
  private end: { readonly error?: unknown } | undefined;
  private removeListeners: (() => void) | undefined;
  private listener: (() => void) | undefined;

  constructor(private readonly request: Http2ServerRequest) {}

  take(): Taken<Uint8Array> {
    this.removeListeners ??= this.addListeners();
    const { chunk } = this;
    if (chunk !== undefined) {
      this.removeChunk(chunk);
      return chunk;
    }
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
    const { stream } = request;
    // Without a read, the request would not emit its own `end`.
    const onEnd = (): void => void request.read();
    const stopReading = (): void => void stream.off('data', this.onChunk);
    // After the response, only `discardBody` reads the stream: a pause would block the client.
    if (!stream.writableFinished) stream.on('data', this.onChunk).once('finish', stopReading);
    stream.once('end', onEnd);
    const stopWaiting = finished(request as Readable, { writable: false }, (error) => {
      this.end = (error ?? undefined) === undefined ? {} : { error };
      this.notify();
    });
    return () => {
      stopReading();
      stream.off('finish', stopReading).off('end', onEnd);
      if (!request.readableEnded && !stream.writableFinished) stream.pause();
      stopWaiting();
    };
  }

  private readonly onChunk = (chunk: Uint8Array): void => {
    if (this.chunk === undefined) this.chunk = chunk;
    else this.laterChunks.push(chunk);
    this.unreadBytes += chunk.byteLength;
    this.notify();
    if (this.unreadBytes < MAX_UNREAD_BYTES || this.isPaused) return;
    this.isPaused = true;
    this.request.stream.pause();
  };

  private removeChunk(chunk: Uint8Array): void {
    this.chunk = this.laterChunks.shift();
    this.unreadBytes -= chunk.byteLength;
    if (!this.isPaused || this.unreadBytes > 0) return;
    this.isPaused = false;
    this.request.stream.resume();
  }

  private notify(): void {
    const { listener } = this;
    this.listener = undefined;
    listener?.();
  }

  private close(): void {
    this.end = {};
    this.chunk = undefined;
    this.laterChunks.length = 0;
    this.removeListeners?.();
    this.removeListeners = () => undefined;
  }
}

/**
 * Bytes that a reader may leave unread before the stream is paused, and with it the client, once
 * its flow control window is used up. As in streams of Node.js.
 */
const MAX_UNREAD_BYTES = 16 * 1024;

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

/** Reads and drops the rest of a body, which {@link RequestChunks} leaves after the response. */
function discardBody(request: AnyRequest): void {
  // With a listener of `readable`, which the iterator of HTTP/1.1 has, the request would not flow.
  request.removeAllListeners('readable').on('data', () => undefined);
  request.resume();
}
