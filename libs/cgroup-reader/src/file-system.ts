import { closeSync, openSync, readSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { CloudlessError } from '@cloudless/base';
import { isAbsent } from './host-machine.js';

/** All that reading statistics asks of a file system; tests give it recorded files. */
export interface StatisticsFiles {
  /**
   * The whole text of a file; undefined when it is not there or not for us, as kernels leave out
   * what they do not support.
   * @throws CloudlessError `exhausted` when it is longer than `maxBytes`; errors of the file system
   *   as they are.
   */
  readText(path: string, maxBytes: number): Promise<string | undefined>;
}

/** As {@link StatisticsFiles}, with the processes there are. */
export interface ProcessFiles extends StatisticsFiles {
  /** Pids of all processes; undefined where `/proc` does not have them. */
  processIds(): Promise<readonly number[] | undefined>;
}

/**
 * Files of the kernel on this machine. They are in memory, and there are many of them: reading one
 * at once takes some 15 microseconds, a fifth of what it takes by way of other threads.
 */
export const hostFiles: ProcessFiles = {
  async readText(path, maxBytes) {
    try {
      const file = openSync(path, 'r');
      try {
        return readUpTo(file, path, maxBytes);
      } finally {
        closeSync(file);
      }
    } catch (reason) {
      if (isAbsent(reason)) return undefined;
      throw reason;
    }
  },
  async processIds() {
    if ((await this.readText('/proc/self/stat', MAX_FILE_BYTES)) === undefined) return undefined;
    return (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  },
};

/** These files have no size that could be asked for: they are made while they are read. */
function readUpTo(file: number, path: string, maxBytes: number): string {
  const chunks: Buffer[] = [];
  for (let total = 0; ;) {
    const bytesRead = readSync(file, chunk, 0, chunk.length, null);
    if (bytesRead === 0)
      return chunks.length === 1 ? String(chunks[0]) : Buffer.concat(chunks).toString('utf8');
    total += bytesRead;
    if (total > maxBytes)
      throw new CloudlessError('exhausted', `${path} is longer than ${maxBytes} bytes`);
    chunks.push(Buffer.from(chunk.subarray(0, bytesRead)));
  }
}

/**
 * One is enough, as nothing comes between a read and the copy. Most files are shorter; of many the
 * kernel gives a page at a time.
 */
const chunk = Buffer.allocUnsafe(16_384);

/**
 * No file about one group comes near: the longest, `io.stat`, has some 100 bytes for each device.
 */
export const MAX_FILE_BYTES = 262_144;
/** A line for each mount of the machine, which are several for each container. */
export const MAX_MOUNTINFO_BYTES = 4_194_304;
