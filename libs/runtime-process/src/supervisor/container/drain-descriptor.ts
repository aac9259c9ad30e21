import { readSync } from 'node:fs';

/** Capacity of a pipe on Linux, so that one read empties a pipe. */
const CHUNK_BYTES = 64 * 1024;

/**
 * Reads the available bytes of a non-blocking descriptor, until it is empty or at its end.
 * @param onChunk - Called with each chunk. The chunk is valid only during the call.
 */
export function drainDescriptor(fd: number, onChunk: (chunk: Uint8Array) => void): void {
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  try {
    for (let length = readSync(fd, chunk); length > 0; length = readSync(fd, chunk))
      onChunk(chunk.subarray(0, length));
  } catch {
    // EAGAIN: empty, but the other end is open; EIO: no process holds the terminal any more
  }
}
