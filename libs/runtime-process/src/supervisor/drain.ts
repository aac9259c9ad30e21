import { readSync } from 'node:fs';

const CHUNK_BYTES = 64 * 1024;

/**
 * Reads what there is now from a descriptor that does not block, until it is empty or at its end.
 */
export function drain(fd: number, take: (chunk: Uint8Array) => void): void {
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  try {
    for (let length = readSync(fd, chunk); length > 0; length = readSync(fd, chunk))
      take(chunk.subarray(0, length));
  } catch {
    // EAGAIN: empty, but someone still holds the other end; EIO: nobody holds the terminal any more
  }
}
