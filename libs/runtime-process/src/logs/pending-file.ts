import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs';
import { MAX_LINE_BYTES } from '@cloudless/runtime';

/** Sequence number and length, see {@link PendingFile}. */
const HEADER_BYTES = 12;

/**
 * A file with the beginning of a line that the container has not ended yet. The next log writer
 * completes the line after the current one was killed.
 *
 * Format: the sequence number of the newest line of the log when the file was written (8 bytes, big
 * endian), the number of pending bytes (4 bytes, big endian), the pending bytes.
 */
export class PendingFile {
  private readonly fd: number;

  /** @param file - Path; created when it does not exist. */
  constructor(file: string) {
    this.fd = openSync(file, constants.O_RDWR | constants.O_CREAT, 0o600);
  }

  /**
   * Returns the pending bytes; empty when there are none.
   * @param lastSequence - Sequence number of the newest line of this stream. A file with a lower
   *   number is out of date: the writer was killed after it wrote the line and before it wrote this
   *   file, so the line already contains the pending bytes.
   */
  read(lastSequence: bigint): Uint8Array {
    const bytes = Buffer.alloc(HEADER_BYTES + MAX_LINE_BYTES);
    const length = readSync(this.fd, bytes, 0, bytes.length, 0);
    if (length < HEADER_BYTES || bytes.readBigUInt64BE(0) < lastSequence) return new Uint8Array(0);
    const end = HEADER_BYTES + bytes.readUInt32BE(8);
    return end > length ? new Uint8Array(0) : new Uint8Array(bytes.subarray(HEADER_BYTES, end));
  }

  /**
   * Replaces the content of the file. Errors of the disk are ignored.
   * @param sequence - Sequence number of the newest line of the log.
   */
  write(sequence: bigint, pending: Uint8Array): void {
    const bytes = Buffer.alloc(HEADER_BYTES + pending.length);
    bytes.writeBigUInt64BE(sequence, 0);
    bytes.writeUInt32BE(pending.length, 8);
    bytes.set(pending, HEADER_BYTES);
    try {
      writeSync(this.fd, bytes, 0, bytes.length, 0);
    } catch {
      // The disk is full. The file matters only when this writer is killed before the line ends.
    }
  }

  close(): void {
    closeSync(this.fd);
  }
}
