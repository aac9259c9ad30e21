import type * as http2 from 'node:http2';

/** Bytes before each message: a flag and the length. */
const PREFIX_BYTES = 5;
/** Path of a method of the coordinator. */
export const pathOf = (method: string): string => `/cloudless.api.CoordinatorService/${method}`;
const headers = (method: string): http2.OutgoingHttpHeaders => ({
  ':method': 'POST',
  ':path': pathOf(method),
  'content-type': 'application/grpc+proto',
  te: 'trailers',
});

/** Encodes messages with their gRPC prefixes, in one buffer. */
export function encodeMessages(messages: readonly Uint8Array[]): Buffer {
  const size = messages.reduce((sum, message) => sum + PREFIX_BYTES + message.length, 0);
  const frames = Buffer.allocUnsafe(size);
  let offset = 0;
  for (const message of messages) {
    frames[offset] = 0;
    frames.writeUInt32BE(message.length, offset + 1);
    frames.set(message, offset + PREFIX_BYTES);
    offset += PREFIX_BYTES + message.length;
  }
  return frames;
}

const NO_BYTES = Buffer.alloc(0);

/** Splits the bytes of a gRPC stream into messages. */
export class MessageReader {
  private rest: Buffer = NO_BYTES;

  /** Returns the messages that are complete with this chunk. They share its memory. */
  read(chunk: Buffer): readonly Uint8Array[] {
    let bytes = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    const messages: Uint8Array[] = [];
    while (bytes.length >= PREFIX_BYTES) {
      const end = PREFIX_BYTES + bytes.readUInt32BE(1);
      if (bytes.length < end) break;
      messages.push(bytes.subarray(PREFIX_BYTES, end));
      bytes = bytes.subarray(end);
    }
    this.rest = bytes.length === 0 ? NO_BYTES : bytes;
    return messages;
  }
}

/**
 * Makes a unary call.
 * @throws Error with the status of the call when there is no response message.
 */
export function callUnary(
  session: http2.ClientHttp2Session,
  method: string,
  request: Uint8Array,
): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const call = session.request(headers(method), { endStream: false });
    const reader = new MessageReader();
    let response: Uint8Array | undefined;
    let status = 'no status';
    call.on('data', (chunk: Buffer) => (response = reader.read(chunk)[0] ?? response));
    const noteStatus = (fields: http2.IncomingHttpHeaders): void => {
      status = String(fields['grpc-message'] ?? fields['grpc-status'] ?? status);
    };
    call.on('response', noteStatus).on('trailers', noteStatus).on('error', reject);
    call.on('close', () => {
      if (response === undefined) reject(new Error(`${method}: ${status}`));
      else resolve(response);
    });
    call.end(encodeMessages([request]));
  });
}
