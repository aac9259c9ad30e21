import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs';
import { MAX_LINE_BYTES } from '@cloudless/runtime';

const HEADER_BYTES = 12;

/**
 * File with the beginning of a line that has no line end yet, so that it survives the writer.
 * Format: sequence number of the log at that moment (8 bytes, big endian), length (4 bytes), bytes.
 */
export class PendingFile {
  private readonly fd: number;

  constructor(file: string) {
    this.fd = openSync(file, openFlags, 0o600);
  }

  /**
   * Returns the pending bytes.
   * @param lastSequence - Sequence number of the newest line of this stream. When the file is
   *   older, the writer was killed after it wrote the line, so the line already contains the
   *   pending bytes.
   */
  read(lastSequence: bigint): Uint8Array {
    const bytes = Buffer.alloc(HEADER_BYTES + MAX_LINE_BYTES);
    const length = readSync(this.fd, bytes, 0, bytes.length, 0);
    if (length < HEADER_BYTES || bytes.readBigUInt64BE(0) < lastSequence) return new Uint8Array(0);
    const end = HEADER_BYTES + bytes.readUInt32BE(8);
    return end > length ? new Uint8Array(0) : new Uint8Array(bytes.subarray(HEADER_BYTES, end));
  }

  write(sequence: bigint, pending: Uint8Array): void {
    const bytes = Buffer.alloc(HEADER_BYTES + pending.length);
    bytes.writeBigUInt64BE(sequence, 0);
    bytes.writeUInt32BE(pending.length, 8);
    bytes.set(pending, HEADER_BYTES);
    try {
      writeSync(this.fd, bytes, 0, bytes.length, 0);
    } catch {
      // The disk is full. The file is needed only if this writer is killed now.
    }
  }

  close(): void {
    closeSync(this.fd);
  }
}

const openFlags = constants.O_RDWR | constants.O_CREAT;
