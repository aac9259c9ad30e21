import { open } from 'node:fs/promises';
import { CloudlessError } from '@cloudless/base';
import { isAbsent } from './host-machine.js';

/** All that reading statistics asks of a file system; tests give it recorded files. */
export interface StatisticsFiles {
  /**
   * The whole text of a file; undefined when it is not there or not for us, as kernels leave out what they do not support.
   * @throws CloudlessError `exhausted` when it is longer than `maxBytes`; errors of the file system as they are.
   */
  readText(path: string, maxBytes: number): Promise<string | undefined>;
}

/** Files of the kernel on this machine. */
export const hostFiles: StatisticsFiles = {
  async readText(path, maxBytes) {
    try {
      const file = await open(path, 'r');
      try {
        return await readUpTo(file, path, maxBytes);
      } finally {
        await file.close();
      }
    } catch (reason) {
      if (isAbsent(reason)) return undefined;
      throw reason;
    }
  },
};

type OpenFile = Awaited<ReturnType<typeof open>>;

/** These files have no size that could be asked for: they are made while they are read. */
async function readUpTo(file: OpenFile, path: string, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  for (let total = 0; ;) {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES, null);
    if (bytesRead === 0) return Buffer.concat(chunks).toString('utf8');
    total += bytesRead;
    if (total > maxBytes) throw new CloudlessError('exhausted', `${path} is longer than ${maxBytes} bytes`);
    chunks.push(buffer.subarray(0, bytesRead));
  }
}

/** Most files are shorter; the kernel gives at most a page at a time of many. */
const CHUNK_BYTES = 4_096;

/** No file about one group comes near: the longest, `io.stat`, has some 100 bytes for each device. */
export const MAX_FILE_BYTES = 262_144;
/** A line for each mount of the machine, which are several for each container. */
export const MAX_MOUNTINFO_BYTES = 4_194_304;
