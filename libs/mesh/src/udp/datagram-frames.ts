const LENGTH_BYTES = 2;
/** Largest datagram. */
export const MAX_DATAGRAM_BYTES = 65_507;

/** Returns a datagram with its length in front, for a stream between two proxies. */
export function encodeDatagram(datagram: Buffer): Buffer {
  const frame = Buffer.allocUnsafe(LENGTH_BYTES + datagram.length);
  frame.writeUInt16BE(datagram.length, 0);
  datagram.copy(frame, LENGTH_BYTES);
  return frame;
}

/** Splits a stream into the datagrams that {@link encodeDatagram} framed, however it is cut. */
export class DatagramReader {
  private rest: Buffer = Buffer.alloc(0);

  constructor(private readonly onDatagram: (datagram: Buffer) => void) {}

  read(chunk: Buffer): void {
    let bytes = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    while (bytes.length >= LENGTH_BYTES) {
      const end = LENGTH_BYTES + bytes.readUInt16BE(0);
      if (bytes.length < end) break;
      this.onDatagram(bytes.subarray(LENGTH_BYTES, end));
      bytes = bytes.subarray(end);
    }
    this.rest = bytes;
  }
}
