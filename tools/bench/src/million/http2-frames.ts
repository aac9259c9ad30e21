// Frames of HTTP/2 as far as the light agents need them.
// @see https://www.rfc-editor.org/rfc/rfc9113#section-4
// @see https://www.rfc-editor.org/rfc/rfc7541#section-6

/** Bytes of the head of a frame: length, type, flags and stream. */
export const HEAD_BYTES = 9;
/** Flow-control window of a stream or connection before any change, bytes. */
export const DEFAULT_WINDOW = 65_535;
/** Largest flow-control window, bytes. */
export const LARGEST_WINDOW = 2 ** 31 - 1;
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

/** Of SETTINGS and PING. */
export const FLAG_ACK = 1;
/** Of DATA and HEADERS. */
export const FLAG_END_STREAM = 1;
/** Of HEADERS. */
const FLAG_END_HEADERS = 4;
/** Of DATA. */
const FLAG_PADDED = 8;

export const SETTING_HEADER_TABLE_SIZE = 1;
export const SETTING_ENABLE_PUSH = 2;
export const SETTING_INITIAL_WINDOW_SIZE = 4;

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/** Writes the head of a frame. */
export function writeHead(
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
  const frame = Buffer.allocUnsafe(HEAD_BYTES + payload.length);
  writeHead(frame, 0, payload.length, type, flags, stream);
  payload.copy(frame, HEAD_BYTES);
  return frame;
}

export function encodeWindowUpdate(stream: number, bytes: number): Buffer {
  const payload = Buffer.allocUnsafe(4);
  payload.writeUInt32BE(bytes);
  return encodeFrame(FrameType.WINDOW_UPDATE, 0, stream, payload);
}

/**
 * What a client sends first. The peer may send as much as it wants before it waits for a
 * WINDOW_UPDATE, and may not refer to header fields of earlier messages.
 */
export function encodeClientStart(): Buffer {
  const settings = [
    [SETTING_HEADER_TABLE_SIZE, 0],
    [SETTING_ENABLE_PUSH, 0],
    [SETTING_INITIAL_WINDOW_SIZE, LARGEST_WINDOW],
  ] as const;
  const payload = Buffer.allocUnsafe(settings.length * 6);
  settings.forEach(([id, value], index) => {
    payload.writeUInt16BE(id, index * 6);
    payload.writeUInt32BE(value, index * 6 + 2);
  });
  return Buffer.concat([
    PREFACE,
    encodeFrame(FrameType.SETTINGS, 0, 0, payload),
    encodeWindowUpdate(0, LARGEST_WINDOW - DEFAULT_WINDOW),
  ]);
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

/** Returns the HEADERS frame of a call that streams; names and values have at most 126 bytes. */
export function encodeHeaders(stream: number, fields: ReadonlyMap<string, string>): Buffer {
  const parts: Buffer[] = [];
  for (const [name, value] of fields)
    parts.push(LITERAL_NEVER_STORED, encodeText(name), encodeText(value));
  return encodeFrame(FrameType.HEADERS, FLAG_END_HEADERS, stream, Buffer.concat(parts));
}

/** A field with a literal name that the peer does not add to its table. */
const LITERAL_NEVER_STORED = Buffer.of(0);

function encodeText(text: string): Buffer {
  if (text.length > 126) throw new RangeError(`header field too long: ${text}`);
  return Buffer.concat([Buffer.of(text.length), Buffer.from(text, 'latin1')]);
}
