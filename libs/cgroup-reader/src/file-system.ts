import { closeSync, openSync, readSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { CloudlessError } from '@cloudless/base';
import { isMissingFile } from './host-machine.js';

/** File access for reading statistics; tests pass recorded files. */
export interface StatisticsFiles {
  /**
   * Returns the whole text of a file; undefined when it does not exist or is not readable for this
   * user (kernels leave out what they do not support).
   * @throws CloudlessError `exhausted` when the file is longer than `maxBytes`; errors of the file
   *   system unchanged.
   */
  readText(path: string, maxBytes: number): Promise<string | undefined>;
}

/** Adds the list of processes to {@link StatisticsFiles}. */
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

/** Reads until the end: kernel files are generated during the read and report no size. */
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
 * One shared buffer is safe, because each read is synchronous. Most files are shorter; of many
 * files the kernel returns one page per read.
 */
const chunk = Buffer.allocUnsafe(16_384);

/** Larger than any file of one group: the longest, `io.stat`, has about 100 bytes per device. */
export const MAX_FILE_BYTES = 262_144;
/** `mountinfo` has a line for each mount of the machine, and each container has several mounts. */
export const MAX_MOUNTINFO_BYTES = 4_194_304;
