import { closeSync, openSync, readSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { CloudlessError } from '@cloudless/base';
import { isMissingFile } from './host-machine.js';

/** File access for reading statistics. Tests pass recorded files. */
export interface StatisticsFiles {
  /**
   * Returns the whole text of a file; undefined when the file does not exist or is not readable for
   * this user. A kernel leaves out the files of features that it does not support.
   * @throws CloudlessError `exhausted` when the file is longer than `maxBytes`; errors of the file
   *   system unchanged.
   */
  readText(path: string, maxBytes: number): Promise<string | undefined>;
}

/** {@link StatisticsFiles} with a list of the processes. */
export interface ProcessFiles extends StatisticsFiles {
  /** Returns the pids of all processes; undefined when `/proc` is not available. */
  processIds(): Promise<readonly number[] | undefined>;
}

/**
 * Kernel files of this machine. Reads synchronously: kernel files are in memory and numerous, and a
 * synchronous read takes about 15 microseconds, a fifth of an asynchronous one.
 */
export const hostFiles: ProcessFiles = {
  async readText(path, maxBytes) {
    try {
      const file = openSync(path, 'r');
      try {
        return readWholeFile(file, path, maxBytes);
      } finally {
        closeSync(file);
      }
    } catch (reason) {
      if (isMissingFile(reason)) return undefined;
      throw reason;
    }
  },
  async processIds() {
    if ((await this.readText('/proc/self/stat', MAX_FILE_BYTES)) === undefined) return undefined;
    return (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  },
};

/**
 * Reads a file until its end, because kernel files are generated during the read and report no
 * size.
 * @param file - Descriptor of the open file.
 * @param path - Path of the file, for the error message.
 */
function readWholeFile(file: number, path: string, maxBytes: number): string {
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
 * Buffer for one read. All reads share the buffer, which is safe because they are synchronous. Most
 * files are shorter; of many longer files the kernel returns only one page per read.
 */
const chunk = Buffer.allocUnsafe(16_384);

/**
 * Size limit for a file of one group or process. The longest, `io.stat`, has about 100 bytes per
 * device.
 */
export const MAX_FILE_BYTES = 262_144;
/** Size limit for `mountinfo`, which has a line for each mount, and several for each container. */
export const MAX_MOUNTINFO_BYTES = 4_194_304;
