import { CloudlessError } from '@cloudless/base';
import type { TerminalSize } from '@cloudless/runtime';

/**
 * `message`: JSON text. `stdout`, `stderr`, `stdin`: raw bytes of a command. `stdinEnd`: no more
 * input, no payload. `resize`: columns and rows of a command's terminal, 2 bytes each, big endian.
 */
export type FrameKind = 'message' | 'stdout' | 'stderr' | 'stdin' | 'stdinEnd' | 'resize';

/** A part of the stream between client and supervisor. */
export interface Frame {
  readonly kind: FrameKind;
  readonly payload: Buffer;
}

/**
 * Largest accepted payload of a frame. Larger frames are refused before their payload is read,
 * which bounds the memory that one peer can make the other hold.
 */
export const MAX_FRAME_BYTES = 2 * 1024 * 1024;

const KINDS: readonly FrameKind[] = ['message', 'stdout', 'stderr', 'stdin', 'stdinEnd', 'resize'];
const HEADER_BYTES = 5;
const RESIZE_BYTES = 4;

/** Encodes a frame: length of the payload (4 bytes, big endian), kind (1 byte), payload. */
export function encodeFrame(kind: FrameKind, payload: Uint8Array = new Uint8Array(0)): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  frame.writeUInt32BE(payload.length, 0);
  frame.writeUInt8(KINDS.indexOf(kind), 4);
  frame.set(payload, HEADER_BYTES);
  return frame;
}

/** Encodes a frame of kind `resize`. */
export function encodeResize({ columns, rows }: TerminalSize): Buffer {
  const payload = Buffer.alloc(RESIZE_BYTES);
  payload.writeUInt16BE(columns, 0);
  payload.writeUInt16BE(rows, 2);
  return encodeFrame('resize', payload);
}

/**
 * Parses the payload of a `resize` frame.
 * @throws kind `invalid` for a payload of another length.
 */
export function parseResize(payload: Buffer): TerminalSize {
  if (payload.length !== RESIZE_BYTES) throw new CloudlessError('invalid', 'malformed frame');
  return { columns: payload.readUInt16BE(0), rows: payload.readUInt16BE(2) };
}

/** Reassembles frames from a byte stream that arrives in chunks of any size. */
export class FrameParser {
  private rest: Buffer = Buffer.alloc(0);

  /**
   * Returns the frames that this chunk completes.
   * @throws kind `invalid` for an unknown kind or a length over {@link MAX_FRAME_BYTES}; close the
   *   connection then.
   */
  feed(chunk: Buffer): readonly Frame[] {
    let bytes = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    const frames: Frame[] = [];
    while (bytes.length >= HEADER_BYTES) {
      const length = bytes.readUInt32BE(0);
      const kind = KINDS[bytes.readUInt8(4)];
      if (kind === undefined || length > MAX_FRAME_BYTES)
        throw new CloudlessError('invalid', 'malformed frame');
      if (bytes.length < HEADER_BYTES + length) break;
      frames.push({ kind, payload: bytes.subarray(HEADER_BYTES, HEADER_BYTES + length) });
      bytes = bytes.subarray(HEADER_BYTES + length);
    }
    this.rest = bytes;
    return frames;
  }
}
