import { Code, ConnectError } from '@connectrpc/connect';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import { errorCodeOf } from '@cloudless/base';
import {
  NOT_READY,
  STREAM_END,
  toIteratorResult,
  toReadyItems,
  type ReadyItems,
  type Taken,
} from '@cloudless/api';
import { createError } from '../admission/retryable-error.js';
import { COMPRESSIONS } from './compressions.js';
import { ENVELOPE_HEAD_BYTES, readEnvelopeLength } from './error-responses.js';
import { countBinaryParts, countJsonParts } from './message-parts.js';

/** Limits of one request message. */
export interface MessageLimits {
  /** Bytes of a message, before and after decompression. */
  readonly readMaxBytes: number;
  /** Fields, list elements and map entries of a message. */
  readonly maxMessageParts: number;
}

/** Bytes from which a message of a stream waits for its turn before it is parsed. */
export const LARGE_MESSAGE_BYTES = 8 * 1024;

/** Head and body of a request. */
export interface InspectedRequest {
  readonly header: Headers;
  readonly body: AsyncIterable<Uint8Array>;
}

/**
 * Checks size and number of parts of each message before Connect parses the message. Decompresses
 * each message for the check, up to the size limit. Passes unknown compressions on, which Connect
 * refuses.
 * @param waitForTurn - Awaited before each message of {@link LARGE_MESSAGE_BYTES} or more in an
 *   envelope. Must not reject. Default: no message waits.
 * @returns A request whose body throws a ConnectError: RESOURCE_EXHAUSTED at a message that is too
 *   large or has too many parts, INVALID_ARGUMENT at invalid flags or invalid compressed data.
 */
export function inspectBody(
  handler: UniversalHandler,
  request: InspectedRequest,
  limits: MessageLimits,
  waitForTurn?: () => Promise<void>,
): InspectedRequest {
  const type = request.header.get('content-type') ?? '';
  const isJson = /json/i.test(type);
  const check = (bytes: Uint8Array): Uint8Array => {
    const { maxMessageParts } = limits;
    if (bytes.byteLength <= maxMessageParts) return bytes; // every part takes at least one byte
    const parts = isJson
      ? countJsonParts(bytes, maxMessageParts)
      : countBinaryParts(handler.method.input, bytes, maxMessageParts);
    if (parts <= maxMessageParts) return bytes;
    throw createError(
      'REQUEST_TOO_LARGE',
      `the message has more than ${maxMessageParts} fields, elements and entries (32 characters of text count as one); send less at once`,
    );
  };
  if (/^application\/(grpc|connect\+)/i.test(type)) {
    const encodingHeader = /^application\/grpc/i.test(type)
      ? 'grpc-encoding'
      : 'connect-content-encoding';
    const encoding = request.header.get(encodingHeader) ?? undefined;
    return {
      header: request.header,
      body: inspectEnvelopes(
        request.body,
        { encodingHeader, encoding },
        limits,
        check,
        waitForTurn,
      ),
    };
  }
  const compression = COMPRESSIONS.find(
    ({ name }) => name === request.header.get('content-encoding'),
  );
  const header = new Headers(request.header);
  if (compression !== undefined) {
    header.delete('content-encoding');
    header.delete('content-length');
    // Without `accept-encoding`, Connect would respond in the compression of the request.
    if (!header.has('accept-encoding')) header.set('accept-encoding', compression.name);
  }
  return {
    header,
    body: inspectMessage(request.body, limits, async (bytes) =>
      check(compression === undefined ? bytes : await decompress(compression, bytes, limits)),
    ),
  };
}

/** Decompresses at most `readMaxBytes`, so that a decompression bomb never takes more memory. */
async function decompress(
  compression: (typeof COMPRESSIONS)[number],
  bytes: Uint8Array,
  { readMaxBytes }: MessageLimits,
): Promise<Uint8Array> {
  try {
    return await compression.decompress(bytes, readMaxBytes);
  } catch (reason) {
    if (errorCodeOf(ConnectError.from(reason).cause) === 'ERR_BUFFER_TOO_LARGE')
      throw createTooLargeError(readMaxBytes);
    throw new ConnectError(
      `the message is not valid ${compression.name}`,
      Code.InvalidArgument,
      undefined,
      undefined,
      reason,
    );
  }
}

/** Inspects a body that is a single message. */
async function* inspectMessage(
  source: AsyncIterable<Uint8Array>,
  { readMaxBytes }: MessageLimits,
  inspect: (bytes: Uint8Array) => Promise<Uint8Array>,
): AsyncIterable<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of source) {
    chunks.push(chunk);
    length += chunk.byteLength;
    if (length > readMaxBytes) throw createTooLargeError(readMaxBytes);
  }
  if (length > 0)
    yield await inspect(chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks));
}

/** Flag of a compressed message. */
const COMPRESSED = 0b1;

/** Compression that the request head names. */
interface StreamEncoding {
  /** Name of the header, for error texts. */
  readonly encodingHeader: string;
  readonly encoding: string | undefined;
}

/** Inspects a body of enveloped messages: flags, length, data. Decompresses the messages. */
function inspectEnvelopes(
  source: AsyncIterable<Uint8Array>,
  streamEncoding: StreamEncoding,
  limits: MessageLimits,
  check: (bytes: Uint8Array) => Uint8Array,
  waitForTurn: (() => Promise<void>) | undefined,
): AsyncIterable<Uint8Array> {
  const { encoding } = streamEncoding;
  const compression = COMPRESSIONS.find(({ name }) => name === encoding);
  const inspect = (envelope: Uint8Array): Uint8Array | Promise<Uint8Array> => {
    const [flags = 0] = envelope;
    const isCompressed = (flags & COMPRESSED) !== 0;
    // A small message needs no check, and so no view of its data.
    if (!isCompressed && envelope.byteLength <= limits.maxMessageParts) return envelope;
    const data = envelope.subarray(ENVELOPE_HEAD_BYTES);
    if (!isCompressed) check(data);
    else if (compression !== undefined)
      return decompress(compression, data, limits).then((plain) =>
        encodeEnvelope(flags & ~COMPRESSED, check(plain)),
      );
    return envelope;
  };
  const inspectInTurn = (envelope: Uint8Array): Uint8Array | Promise<Uint8Array> =>
    waitForTurn === undefined || envelope.byteLength < LARGE_MESSAGE_BYTES
      ? inspect(envelope)
      : waitForTurn().then(() => inspect(envelope));
  return {
    [Symbol.asyncIterator]: () =>
      new EnvelopeIterator(
        source[Symbol.asyncIterator](),
        (pending) => takeEnvelope(pending, streamEncoding, limits),
        inspectInTurn,
      ),
  };
}

/**
 * Removes and returns the first envelope; undefined when it is not complete.
 * @throws ConnectError as soon as its head shows that it is refused.
 */
function takeEnvelope(
  pending: PendingBytes,
  streamEncoding: StreamEncoding,
  { readMaxBytes }: MessageLimits,
): Uint8Array | undefined {
  if (pending.length < ENVELOPE_HEAD_BYTES) return undefined;
  const head = pending.peek(ENVELOPE_HEAD_BYTES);
  checkFlags(head[0] ?? 0, streamEncoding);
  const length = readEnvelopeLength(head);
  if (length > readMaxBytes) throw createTooLargeError(readMaxBytes, length);
  const whole = ENVELOPE_HEAD_BYTES + length;
  return pending.length < whole ? undefined : pending.shift(whole);
}

const END: IteratorReturnResult<undefined> = { done: true, value: undefined };

/**
 * The inspected envelopes of a body, then the bytes of an incomplete one. For one reader that awaits
 * each envelope before the next. Written without an asynchronous generator, whose promises cost
 * more than the inspection of a small message.
 */
class EnvelopeIterator implements ReadyItems<Uint8Array> {
  private readonly pending = new PendingBytes();
  private readonly ready: ReadyItems<Uint8Array> | undefined;
  private hasEnded = false;
  /** True while {@link take} has to wait for the inspection of an envelope. */
  private isInspecting = false;
  /** Returns, or throws, what the inspection has found. */
  private inspected: (() => Uint8Array) | undefined;
  private listener: (() => void) | undefined;

  constructor(
    private readonly source: AsyncIterator<Uint8Array>,
    private readonly takeEnvelope: (pending: PendingBytes) => Uint8Array | undefined,
    private readonly inspect: (envelope: Uint8Array) => Uint8Array | Promise<Uint8Array>,
  ) {
    this.ready = toReadyItems(source);
  }

  get canTake(): boolean {
    return this.ready !== undefined;
  }

  take(): Taken<Uint8Array> {
    let isReading = false;
    try {
      while (!this.hasEnded) {
        if (this.isInspecting) return this.takeInspected();
        const envelope = this.takeEnvelope(this.pending);
        if (envelope !== undefined) return this.startInspection(envelope);
        isReading = true;
        const chunk = this.ready?.take() ?? STREAM_END;
        isReading = false;
        if (chunk === NOT_READY) return NOT_READY;
        if (chunk === STREAM_END) return this.takeRest() ?? STREAM_END;
        this.pending.push(chunk);
      }
      return STREAM_END;
    } catch (reason) {
      this.hasEnded = true;
      if (!isReading) void this.source.return?.().catch(() => undefined);
      throw reason;
    }
  }

  onReady(listener: () => void): void {
    if (this.isInspecting) this.listener = listener;
    else this.ready?.onReady(listener);
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    let isReading = false;
    try {
      while (!this.hasEnded) {
        const envelope = this.takeEnvelope(this.pending);
        if (envelope !== undefined) {
          const inspected = this.inspect(envelope);
          return {
            done: false,
            value: inspected instanceof Uint8Array ? inspected : await inspected,
          };
        }
        isReading = true;
        const chunk = await this.source.next();
        isReading = false;
        if (chunk.done === true) return toIteratorResult(this.takeRest() ?? STREAM_END);
        this.pending.push(chunk.value);
      }
      return END;
    } catch (reason) {
      this.hasEnded = true;
      // The first error counts, as in a `for await` loop.
      if (!isReading) await this.source.return?.().catch(() => undefined);
      throw reason;
    }
  }

  async return(): Promise<IteratorResult<Uint8Array>> {
    this.hasEnded = true;
    await this.source.return?.();
    return END;
  }

  /** Ends the body. Returns the bytes of an incomplete envelope, if any. */
  private takeRest(): Uint8Array | undefined {
    this.hasEnded = true;
    const { length } = this.pending;
    return length > 0 ? this.pending.shift(length) : undefined;
  }

  /** @returns NOT_READY when {@link takeInspected} returns the envelope later. */
  private startInspection(envelope: Uint8Array): Uint8Array | typeof NOT_READY {
    const inspected = this.inspect(envelope);
    if (inspected instanceof Uint8Array) return inspected;
    this.isInspecting = true;
    const end = (getResult: () => Uint8Array): void => {
      this.inspected = getResult;
      this.listener?.();
    };
    inspected.then(
      (value) => end(() => value),
      (reason: unknown) =>
        end(() => {
          throw reason;
        }),
    );
    return NOT_READY;
  }

  private takeInspected(): Uint8Array | typeof NOT_READY {
    const { inspected } = this;
    if (inspected === undefined) return NOT_READY;
    this.isInspecting = false;
    this.inspected = undefined;
    this.listener = undefined;
    return inspected();
  }
}

/**
 * Checks the flags of a request message, of which all protocols define only "compressed". Connect
 * ignores unknown flags, and reports a compressed message without an encoding as an internal error.
 * @throws ConnectError INVALID_ARGUMENT.
 */
function checkFlags(flags: number, { encodingHeader, encoding }: StreamEncoding): void {
  if ((flags & ~COMPRESSED) !== 0) {
    const bits = flags.toString(2).padStart(8, '0');
    throw new ConnectError(
      `a message has the flags ${bits}; only the last bit (compressed) is allowed`,
      Code.InvalidArgument,
    );
  }
  if (flags === COMPRESSED && (encoding === undefined || encoding === 'identity')) {
    throw new ConnectError(
      `a message is marked as compressed, but the header ${encodingHeader} names no compression`,
      Code.InvalidArgument,
    );
  }
}

/** Cuts a sequence of chunks into pieces of other sizes. Copies each byte at most twice. */
class PendingBytes {
  /** The next bytes. Mostly all that are pending, so that no list is needed. */
  private first: Uint8Array = NO_BYTES;
  /** The chunks after `first`. */
  private rest: Uint8Array[] = [];
  length = 0;

  push(chunk: Uint8Array): void {
    if (this.length === 0) this.first = chunk;
    else this.rest.push(chunk);
    this.length += chunk.byteLength;
  }

  /** Returns the next bytes, at least `count`, without removing them. */
  peek(count: number): Uint8Array {
    while (this.first.byteLength < count)
      this.first = Buffer.concat([this.first, this.rest.shift() ?? NO_BYTES]);
    return this.first;
  }

  /** Removes and returns the next bytes. At least `count` must be pending, as in `peek`. */
  shift(count: number): Uint8Array {
    if (this.first.byteLength < count) {
      this.first = Buffer.concat([this.first, ...this.rest]);
      this.rest = [];
    }
    const { first } = this;
    this.length -= count;
    if (first.byteLength === count) {
      this.first = this.rest.shift() ?? NO_BYTES;
      return first;
    }
    this.first = first.subarray(count);
    return first.subarray(0, count);
  }
}

const NO_BYTES = new Uint8Array();

function encodeEnvelope(flags: number, data: Uint8Array): Uint8Array {
  const head = Buffer.alloc(ENVELOPE_HEAD_BYTES);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(data.byteLength, 1);
  return Buffer.concat([head, data]);
}

export function createTooLargeError(readMaxBytes: number, length?: number): ConnectError {
  const size = length === undefined ? 'message' : `message of ${length} bytes`;
  return createError(
    'REQUEST_TOO_LARGE',
    `the ${size} is larger than ${readMaxBytes} bytes, the largest that this server accepts`,
  );
}
