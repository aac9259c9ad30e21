// This file contains the part of SPDY/3.1 that remote commands of container runtimes need: a client
// that opens streams, and sends and receives data. Every runtime supports SPDY/3.1, because
// kubelets use it. The WebSocket protocol that all runtimes support (v4) cannot signal the end of
// the input of a command.

/**
 * Version of the protocol in control frames.
 * @see https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
 */
const VERSION = 3;
/** Size of the header of every frame. */
const HEADER_BYTES = 8;
/** Flag of the last frame that its sender writes to a stream. */
const FLAG_FIN = 0x01;
/**
 * Size above which the payload of a control frame is skipped: the frames that {@link SpdyParser}
 * returns are far smaller, and the length field allows 16 MiB.
 */
const MAX_CONTROL_BYTES = 64 * 1024;
/** Types of control frames. */
const SYN_STREAM = 1;
const RST_STREAM = 3;
const PING = 6;
const GOAWAY = 7;

/** A received frame. Frames of other types are ignored. */
export type SpdyFrame =
  | { readonly kind: 'data'; readonly streamId: number; readonly data: Uint8Array }
  /** The peer writes no more to this stream. */
  | { readonly kind: 'end'; readonly streamId: number }
  /** The peer ended the stream in both directions, with a status of RST_STREAM. */
  | { readonly kind: 'reset'; readonly streamId: number; readonly status: number }
  /** Answer with {@link encodePingFrame}. */
  | { readonly kind: 'ping'; readonly id: number }
  /** The peer accepts no further streams. */
  | { readonly kind: 'goAway' };

/** Encodes the frames that open the streams of one connection, each with one header. */
export class SpdyStreams {
  private opened = 0;

  /**
   * Returns the id of a new stream, and the frame that opens this stream. Ids are odd and increase.
   * Send the frames in the order of the calls, because their headers share one zlib stream.
   * @param name - Name of the header, such as `streamtype`.
   * @param value - Value of the header, such as `stdin`.
   */
  open(name: string, value: string): { readonly streamId: number; readonly frame: Buffer } {
    const streamId = 1 + 2 * this.opened;
    const block = deflateStored(encodeHeaderBlock(name, value), this.opened === 0);
    this.opened += 1;
    const payload = Buffer.alloc(10);
    payload.writeUInt32BE(streamId, 0);
    return { streamId, frame: encodeControlFrame(SYN_STREAM, Buffer.concat([payload, block])) };
  }
}

/**
 * Encodes data of one stream.
 * @param end - True when this side writes no more to the stream. Default false.
 */
export function encodeDataFrame(streamId: number, data: Uint8Array, end = false): Buffer {
  const frame = Buffer.alloc(HEADER_BYTES + data.length);
  frame.writeUInt32BE(streamId, 0);
  frame.writeUInt32BE(((end ? FLAG_FIN : 0) << 24) | data.length, 4);
  frame.set(data, HEADER_BYTES);
  return frame;
}

/** Encodes the response to a ping. */
export function encodePingFrame(id: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(id, 0);
  return encodeControlFrame(PING, payload);
}

/**
 * Parses frames from chunks of any size. The data of a frame is returned as it arrives, in several
 * `data` frames, and never buffered.
 */
export class SpdyParser {
  private header: Buffer = Buffer.alloc(0);
  /** The data frame that is being received, with the number of bytes that are still missing. */
  private open: { readonly streamId: number; readonly end: boolean; left: number } | undefined;
  /** The control frame that is being received. */
  private control:
    { readonly type: number; payload: Buffer; left: number; readonly skip: boolean } | undefined;

  /** Returns the frames, and parts of data frames, that these bytes complete, in order. */
  feed(chunk: Uint8Array): readonly SpdyFrame[] {
    const frames: SpdyFrame[] = [];
    let rest = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    while (rest.length > 0) rest = this.parseNext(rest, frames);
    return frames;
  }

  /** Parses the first part of the bytes and returns the rest. */
  private parseNext(bytes: Buffer, frames: SpdyFrame[]): Buffer {
    if (this.open !== undefined) return this.parseData(this.open, bytes, frames);
    if (this.control !== undefined) return this.parseControl(this.control, bytes, frames);
    const missing = HEADER_BYTES - this.header.length;
    this.header = Buffer.concat([this.header, bytes.subarray(0, missing)]);
    if (this.header.length === HEADER_BYTES) this.beginFrame(this.header, frames);
    return bytes.subarray(missing);
  }

  private beginFrame(header: Buffer, frames: SpdyFrame[]): void {
    this.header = Buffer.alloc(0);
    const first = header.readUInt32BE(0);
    const flags = header[4] ?? 0;
    const left = header.readUIntBE(5, 3);
    if (first >>> 31 === 1) {
      const type = first & 0xffff;
      this.control = { type, payload: Buffer.alloc(0), left, skip: left > MAX_CONTROL_BYTES };
      if (left === 0) this.endControl(this.control, frames);
    } else {
      this.open = { streamId: first, end: (flags & FLAG_FIN) !== 0, left };
      if (left === 0) this.endData(this.open, frames);
    }
  }

  private parseData(
    open: NonNullable<SpdyParser['open']>,
    bytes: Buffer,
    frames: SpdyFrame[],
  ): Buffer {
    const data = bytes.subarray(0, open.left);
    open.left -= data.length;
    frames.push({ kind: 'data', streamId: open.streamId, data: new Uint8Array(data) });
    if (open.left === 0) this.endData(open, frames);
    return bytes.subarray(data.length);
  }

  private endData({ streamId, end }: NonNullable<SpdyParser['open']>, frames: SpdyFrame[]): void {
    this.open = undefined;
    if (end) frames.push({ kind: 'end', streamId });
  }

  private parseControl(
    control: NonNullable<SpdyParser['control']>,
    bytes: Buffer,
    frames: SpdyFrame[],
  ): Buffer {
    const part = bytes.subarray(0, control.left);
    control.left -= part.length;
    if (!control.skip) control.payload = Buffer.concat([control.payload, part]);
    if (control.left === 0) this.endControl(control, frames);
    return bytes.subarray(part.length);
  }

  private endControl(
    { type, payload }: NonNullable<SpdyParser['control']>,
    frames: SpdyFrame[],
  ): void {
    this.control = undefined;
    if (type === GOAWAY) frames.push({ kind: 'goAway' });
    else if (type === PING && payload.length >= 4)
      frames.push({ kind: 'ping', id: payload.readUInt32BE(0) });
    else if (type === RST_STREAM && payload.length >= 8) {
      frames.push({
        kind: 'reset',
        streamId: payload.readUInt32BE(0) & 0x7fffffff,
        status: payload.readUInt32BE(4),
      });
    }
  }
}

function encodeControlFrame(type: number, payload: Buffer): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(0x8000 | VERSION, 0);
  header.writeUInt16BE(type, 2);
  header.writeUInt32BE(payload.length, 4);
  return Buffer.concat([header, payload]);
}

/** Encodes a block with one header: their number, then length and text of name and value. */
function encodeHeaderBlock(name: string, value: string): Buffer {
  const block = Buffer.alloc(4 + 4 + name.length + 4 + value.length);
  block.writeUInt32BE(1, 0);
  block.writeUInt32BE(name.length, 4);
  block.write(name, 8, 'latin1');
  block.writeUInt32BE(value.length, 8 + name.length);
  block.write(value, 12 + name.length, 'latin1');
  return block;
}

/**
 * Encodes the next part of the zlib stream that all header blocks of a connection share. The part
 * is not compressed, so the encoder keeps no state. It consists of an RFC 1950 header (first part
 * only), an RFC 1951 block of type 0, and an empty block that flushes the peer's decompressor.
 */
function deflateStored(bytes: Buffer, isFirst: boolean): Buffer {
  const lengths = Buffer.alloc(5);
  lengths.writeUInt16LE(bytes.length, 1);
  lengths.writeUInt16LE(~bytes.length & 0xffff, 3);
  const flush = Buffer.from([0, 0, 0, 0xff, 0xff]);
  return Buffer.concat([
    isFirst ? Buffer.from([0x78, 0x01]) : Buffer.alloc(0),
    lengths,
    bytes,
    flush,
  ]);
}
