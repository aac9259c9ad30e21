// Frames of HTTP/2 as far as the light agents need them.
// @see https://www.rfc-editor.org/rfc/rfc9113#section-4
// @see https://www.rfc-editor.org/rfc/rfc7541#section-6

/** Bytes of the header of a frame: length, type, flags and stream. */
export const HEADER_BYTES = 9;
/** Flow-control window of a stream or connection before any change, bytes. */
export const DEFAULT_WINDOW = 65_535;
/** Largest flow-control window, bytes. */
const LARGEST_WINDOW = 2 ** 31 - 1;
/** Largest payload of a frame that every peer accepts, bytes. */
export const MAX_PAYLOAD = 16_384;

export const FrameType = {
  DATA: 0,
  HEADERS: 1,
  RST_STREAM: 3,
  SETTINGS: 4,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
} as const;

/** Flag of SETTINGS and PING. */
export const FLAG_ACK = 1;
/** Flag of DATA and HEADERS. */
export const FLAG_END_STREAM = 1;
/** Flag of HEADERS. */
const FLAG_END_HEADERS = 4;
/** Flag of DATA. */
const FLAG_PADDED = 8;

const SETTING_HEADER_TABLE_SIZE = 1;
const SETTING_ENABLE_PUSH = 2;
export const SETTING_INITIAL_WINDOW_SIZE = 4;

/** Bits of a stream id and of a window increment; the highest of their 32 bits is reserved. */
const VALUE_MASK = 2 ** 31 - 1;

/** Bytes that a client sends before its first frame. */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/** Writes the header of a frame. */
export function writeHeader(
  into: Buffer,
  at: number,
  length: number,
  type: number,
  flags: number,
  stream: number,
): void {
  into.writeUIntBE(length, at, 3);
  into[at + 3] = type;
  into[at + 4] = flags;
  into.writeUInt32BE(stream, at + 5);
}

/** Returns a whole frame. */
export function encodeFrame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  writeHeader(frame, 0, payload.length, type, flags, stream);
  payload.copy(frame, HEADER_BYTES);
  return frame;
}

/** Splits the bytes of a connection into frames. */
export class FrameSplitter {
  private rest: Buffer = Buffer.alloc(0);

  /**
   * Calls `handle` for each frame that is complete with this chunk.
   * @param handle - The payload shares memory with the input.
   */
  read(
    chunk: Buffer,
    handle: (type: number, flags: number, stream: number, payload: Buffer) => void,
  ): void {
    const bytes = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    let at = 0;
    while (bytes.length - at >= HEADER_BYTES) {
      const end = at + HEADER_BYTES + bytes.readUIntBE(at, 3);
      if (end > bytes.length) break;
      const stream = bytes.readUInt32BE(at + 5) & VALUE_MASK;
      const payload = bytes.subarray(at + HEADER_BYTES, end);
      handle(bytes[at + 3] as number, bytes[at + 4] as number, stream, payload);
      at = end;
    }
    this.rest = at === bytes.length ? Buffer.alloc(0) : bytes.subarray(at);
  }
}

/** Returns by how many bytes a WINDOW_UPDATE frame widens a window. */
export function decodeWindowUpdate(payload: Buffer): number {
  return payload.readUInt32BE(0) & VALUE_MASK;
}

export function encodeWindowUpdate(stream: number, bytes: number): Buffer {
  const payload = Buffer.allocUnsafe(4);
  payload.writeUInt32BE(bytes);
  return encodeFrame(FrameType.WINDOW_UPDATE, 0, stream, payload);
}

/**
 * Returns what a client sends first: the largest windows, so that the peer need not wait for a
 * WINDOW_UPDATE before 2 GiB, and no table of earlier header fields.
 */
export function encodeClientStart(): Buffer {
  return Buffer.concat([
    PREFACE,
    encodeSettings([
      [SETTING_HEADER_TABLE_SIZE, 0],
      [SETTING_ENABLE_PUSH, 0],
      [SETTING_INITIAL_WINDOW_SIZE, LARGEST_WINDOW],
    ]),
    encodeWindowUpdate(0, LARGEST_WINDOW - DEFAULT_WINDOW),
  ]);
}

/** Returns a SETTINGS frame with pairs of number and value. */
export function encodeSettings(settings: readonly (readonly [number, number])[]): Buffer {
  const payload = Buffer.allocUnsafe(settings.length * 6);
  settings.forEach(([id, value], index) => {
    payload.writeUInt16BE(id, index * 6);
    payload.writeUInt32BE(value, index * 6 + 2);
  });
  return encodeFrame(FrameType.SETTINGS, 0, 0, payload);
}

/** Returns the settings of a SETTINGS frame by number. */
export function decodeSettings(payload: Buffer): ReadonlyMap<number, number> {
  const settings = new Map<number, number>();
  for (let at = 0; at + 6 <= payload.length; at += 6)
    settings.set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2));
  return settings;
}

/** Returns the data of a DATA frame without its padding. */
export function withoutPadding(flags: number, payload: Buffer): Buffer {
  return (flags & FLAG_PADDED) === 0
    ? payload
    : payload.subarray(1, payload.length - (payload[0] as number));
}

/** A field with a literal name, which the peer does not add to its table. */
const LITERAL_WITHOUT_INDEXING = Buffer.of(0);

/**
 * Returns the HEADERS frame of a streaming call.
 * @param fields - Names and values of at most 126 bytes.
 */
export function encodeHeaders(stream: number, fields: ReadonlyMap<string, string>): Buffer {
  const parts: Buffer[] = [];
  for (const [name, value] of fields)
    parts.push(LITERAL_WITHOUT_INDEXING, encodeText(name), encodeText(value));
  return encodeFrame(FrameType.HEADERS, FLAG_END_HEADERS, stream, Buffer.concat(parts));
}

function encodeText(text: string): Buffer {
  if (text.length > 126) throw new RangeError(`header field too long: ${text}`);
  return Buffer.concat([Buffer.of(text.length), Buffer.from(text, 'latin1')]);
}
