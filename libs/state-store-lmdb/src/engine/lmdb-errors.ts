import { open, rm, stat, statfs, type FileHandle } from 'node:fs/promises';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { CloudlessError } from '@cloudless/base';

/**
 * Error code "environment mapsize limit reached".
 * @see lmdb.h, MDB_MAP_FULL
 */
const MDB_MAP_FULL = -30_792;

const { EDQUOT, EFBIG, EIO, ENOSPC } = constants.errno;
/** Codes of a full disk, quota or file size limit. */
const NO_SPACE_CODES: readonly unknown[] = [MDB_MAP_FULL, ENOSPC, EDQUOT, EFBIG];

/** More bytes than any group commit writes, including all its pages. */
const GROUP_SPACE_BYTES = 64 * 1024 * 1024;
/**
 * Free bytes at which writes to a full disk are tried again. With fewer free bytes, small writes
 * would succeed between large ones that fail.
 */
const RESUME_FREE_BYTES = 4 * 1024 * 1024;
/** Bytes of one write of the probe file. */
const CHUNK_BYTES = 1024 * 1024;

/**
 * Returns true when LMDB aborted a transaction because the disk is full, so that nothing was
 * committed. LMDB reports a partial write as EIO; a probe of the free space then decides.
 * @param reason - The rejection of LMDB.
 * @param file - Path of the data file; the file need not exist.
 * @see mdb.c, mdb_page_flush, "short write, filesystem full?"
 */
export async function isOutOfSpace(reason: unknown, file: string): Promise<boolean> {
  const code = getProperty(await findRootCause(reason), 'code');
  if (NO_SPACE_CODES.includes(code)) return true;
  if (code !== EIO) return false;
  const { bavail, bsize } = await statfs(dirname(file));
  const result = await probeWrite(file);
  // another process may have freed space meanwhile
  return result === 'refused' || (result === 'written' && bavail * bsize < GROUP_SPACE_BYTES);
}

/**
 * Returns true when the file system has space for writes again, or when statfs does not show why
 * writes fail (quotas).
 */
export async function mayHaveSpace(file: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(dirname(file));
  return bavail * bsize >= RESUME_FREE_BYTES;
}

/** Creates the error for a write to a full disk. */
export function diskFullError(file: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'STORE_FULL',
    `disk full: no space left for ${file}, nothing was written; free some space on its file system, and writes continue automatically`,
    { cause },
  );
}

/**
 * Writes a probe file beside the data file, at the offset where the data file ends, and removes the
 * probe file. Detects quotas and file size limits, which statfs does not show.
 * @returns `refused` when there is no space, `failed` when the disk fails for another reason.
 */
async function probeWrite(file: string): Promise<'written' | 'refused' | 'failed'> {
  const probe = join(dirname(file), 'probe');
  let handle: FileHandle | undefined;
  try {
    handle = await open(probe, 'w', 0o600);
    const { size } = await stat(file);
    const chunk = Buffer.alloc(CHUNK_BYTES);
    for (let offset = 0; offset < GROUP_SPACE_BYTES; offset += CHUNK_BYTES)
      if (!(await writeWhole(handle, chunk, size + offset))) return 'refused';
    return 'written';
  } catch (reason) {
    return NO_SPACE_CODES.includes(getErrno(reason)) ? 'refused' : 'failed';
  } finally {
    await handle?.close();
    await rm(probe, { force: true }).catch(() => undefined); // a failing disk may also refuse this
  }
}

/**
 * Writes a chunk.
 * @returns False after a partial write, as happens at the end of the free space.
 */
async function writeWhole(handle: FileHandle, chunk: Buffer, position: number): Promise<boolean> {
  const { bytesWritten } = await handle.write(chunk, 0, chunk.length, position);
  return bytesWritten === chunk.length;
}

/** Returns the `errno` of a Node error as a positive number. */
function getErrno(reason: unknown): number {
  return Math.abs(Number(getProperty(reason, 'errno')));
}

/**
 * Returns the cause of a failed commit. The Node.js binding of LMDB hides the cause in a promise
 * that has rejected, or rejects in the same iteration of the event loop.
 */
async function findRootCause(reason: unknown): Promise<unknown> {
  const hidden = getProperty(reason, 'commitError');
  if (!(hidden instanceof Promise)) return reason;
  return hidden.then(
    () => reason,
    (cause: unknown) => cause,
  );
}

function getProperty(reason: unknown, name: string): unknown {
  return typeof reason === 'object' && reason !== null
    ? (reason as Record<string, unknown>)[name]
    : undefined;
}
