/**
 * The frames between two proxies. A frame is a header of eight bytes (type, length of the payload as
 * 24 bits, id of the stream as 32 bits; big-endian) and a payload.
 */
export const FrameType = {
  /** First frame of each side: text of a {@link Hello}. Stream 0. */
  hello: 1,
  /** Opens a stream: text of an {@link OpenRequest}. */
  open: 2,
  /** The endpoint of the stream is connected. */
  accept: 3,
  /** The stream is not opened: text of a {@link Refusal}. */
  refuse: 4,
  /** Bytes of a stream, within the window that the receiver has granted. */
  data: 5,
  /** Grants the sender of a stream further bytes: a number of 32 bits. */
  window: 6,
  /** The sender sends no further bytes in the stream. */
  end: 7,
  /** The stream ends at once, in both directions. */
  reset: 8,
  /** The receiver answers with `pong`. Stream 0. */
  ping: 9,
  pong: 10,
  /** The sender accepts no further streams: text of the reason. Stream 0. */
  goAway: 11,
} as const;

export type FrameType = (typeof FrameType)[keyof typeof FrameType];

/** Bytes of a frame before its payload. */
export const HEADER_BYTES = 8;
/** Largest payload of a `data` frame. */
export const MAX_DATA_BYTES = 64 * 1024;
/** Largest payload of the other frames. */
export const MAX_CONTROL_BYTES = 4 * 1024;
/** Bytes that each side may send in a stream before the first `window` frame. */
export const INITIAL_WINDOW_BYTES = 64 * 1024;
/** Highest id of a stream. A connection that reaches the id is replaced. */
export const MAX_STREAM_ID = 2 ** 31 - 1;

/** Returns the header of a frame. */
export function encodeHeader(type: FrameType, streamId: number, length: number): Buffer {
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  header.writeUInt32BE(((type << 24) | length) >>> 0, 0);
  header.writeUInt32BE(streamId, 4);
  return header;
}

/** Returns a frame with a payload of text. */
export function encodeText(type: FrameType, streamId: number, text: string): Buffer {
  const payload = Buffer.from(text);
  return Buffer.concat([encodeHeader(type, streamId, payload.length), payload]);
}

/** Returns a `window` frame. */
export function encodeWindow(streamId: number, bytes: number): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + 4);
  frame.writeUInt32BE(((FrameType.window << 24) | 4) >>> 0, 0);
  frame.writeUInt32BE(streamId, 4);
  frame.writeUInt32BE(bytes, 8);
  return frame;
}

/** Receiver of the frames that a {@link FrameReader} reads. */
export interface FrameHandler {
  /**
   * Part of the payload of a `data` frame, as the bytes arrive. The bytes belong to a larger
   * buffer.
   */
  onData(streamId: number, bytes: Buffer): void;
  /** A whole frame of another type. */
  onControl(type: number, streamId: number, payload: Buffer): void;
}

/** Error of a peer that does not follow the rules of the frames. */
export class FrameError extends Error {
  override readonly name = 'FrameError';
}

/**
 * Splits a sequence of bytes into frames, however the bytes are cut. Keeps at most one control frame;
 * the payload of `data` frames is passed on without a copy.
 */
export class FrameReader {
  /** Bytes of an incomplete header or control frame. */
  private readonly partial = Buffer.allocUnsafe(HEADER_BYTES + MAX_CONTROL_BYTES);
  private partialBytes = 0;
  /** Bytes that are missing of the current `data` frame. */
  private dataRemaining = 0;
  private dataStreamId = 0;

  constructor(private readonly handler: FrameHandler) {}

  /** @throws {@link FrameError} when a frame is too large; the connection must end then. */
  read(chunk: Buffer): void {
    let offset = 0;
    while (offset < chunk.length) {
      if (this.dataRemaining > 0) offset = this.readData(chunk, offset);
      else if (this.partialBytes === 0 && chunk.length - offset >= HEADER_BYTES)
        offset = this.readWhole(chunk, offset);
      else offset = this.readPartial(chunk, offset);
    }
  }

  private readData(chunk: Buffer, offset: number): number {
    const end = Math.min(chunk.length, offset + this.dataRemaining);
    this.dataRemaining -= end - offset;
    this.handler.onData(this.dataStreamId, chunk.subarray(offset, end));
    return end;
  }

  /** Reads a frame whose header is in the chunk. */
  private readWhole(chunk: Buffer, offset: number): number {
    const first = chunk.readUInt32BE(offset);
    const type = first >>> 24;
    const length = first & 0xff_ffff;
    const streamId = chunk.readUInt32BE(offset + 4);
    checkLength(type, length);
    const start = offset + HEADER_BYTES;
    if (type === FrameType.data) {
      this.dataRemaining = length;
      this.dataStreamId = streamId;
      return start;
    }
    const end = start + length;
    if (end > chunk.length) return this.readPartial(chunk, offset);
    this.handler.onControl(type, streamId, chunk.subarray(start, end));
    return end;
  }

  private readPartial(chunk: Buffer, offset: number): number {
    const { partial } = this;
    let next = offset;
    if (this.partialBytes < HEADER_BYTES) {
      next = this.fill(chunk, next, HEADER_BYTES);
      if (this.partialBytes < HEADER_BYTES) return next;
    }
    const first = partial.readUInt32BE(0);
    const type = first >>> 24;
    const length = first & 0xff_ffff;
    const streamId = partial.readUInt32BE(4);
    checkLength(type, length);
    if (type === FrameType.data) {
      this.partialBytes = 0;
      this.dataRemaining = length;
      this.dataStreamId = streamId;
      return next;
    }
    const whole = HEADER_BYTES + length;
    next = this.fill(chunk, next, whole);
    if (this.partialBytes < whole) return next;
    this.partialBytes = 0;
    this.handler.onControl(type, streamId, Buffer.from(partial.subarray(HEADER_BYTES, whole)));
    return next;
  }

  /** Copies bytes until `partial` has `wanted` bytes. Returns the offset behind them. */
  private fill(chunk: Buffer, offset: number, wanted: number): number {
    const count = Math.min(wanted - this.partialBytes, chunk.length - offset);
    chunk.copy(this.partial, this.partialBytes, offset, offset + count);
    this.partialBytes += count;
    return offset + count;
  }
}

function checkLength(type: number, length: number): void {
  const limit = type === FrameType.data ? MAX_DATA_BYTES : MAX_CONTROL_BYTES;
  if (length > limit)
    throw new FrameError(`a frame of type ${type} has ${length} bytes; the limit is ${limit}`);
}
