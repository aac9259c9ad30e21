import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs';
import { MAX_LINE_BYTES } from '@cloudless/runtime';

const HEADER_BYTES = 12;

/**
 * The beginning of a line that has no end yet, kept on disk so that it outlives the writer: the
 * log's sequence number at that moment (8 bytes, big endian), length (4 bytes), bytes.
 */
export class PendingFile {
  private readonly fd: number;

  constructor(file: string) {
    this.fd = openSync(file, openFlags, 0o600);
  }

  /**
   * What was pending.
   * @param lastSequence - Of the newest line of this stream: when the file is older than it, the
   *   writer was killed after it wrote the line, and what the file holds is part of it.
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
      // A full disk: only a writer that is killed now would need it.
    }
  }

  close(): void {
    closeSync(this.fd);
  }
}

const openFlags = constants.O_RDWR | constants.O_CREAT;
