import { open, rm, stat, statfs, type FileHandle } from 'node:fs/promises';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { CloudlessError } from '@cloudless/base';

/** LMDB's "environment mapsize limit reached". @see lmdb.h, MDB_MAP_FULL */
const MDB_MAP_FULL = -30_792;

const { EDQUOT, EFBIG, EIO, ENOSPC } = constants.errno;
const NO_SPACE: readonly unknown[] = [MDB_MAP_FULL, ENOSPC, EDQUOT, EFBIG];

/** More than any group commit writes, including all its pages. */
const GROUP_SPACE_BYTES = 64 * 1024 * 1024;
/**
 * Free bytes after which writes are tried again on a full disk. With less, small writes would
 * succeed between large ones that fail.
 */
const RESUME_FREE_BYTES = 4 * 1024 * 1024;
const CHUNK_BYTES = 1024 * 1024;

/**
 * Says whether LMDB aborted a transaction because the disk is full, so that nothing was committed.
 * LMDB reports a partial write as EIO; the free space then decides.
 * @param reason - The rejection of LMDB.
 * @param file - The data file; need not exist.
 * @see mdb.c, mdb_page_flush, "short write, filesystem full?"
 */
export async function isOutOfSpace(reason: unknown, file: string): Promise<boolean> {
  const code = getProperty(await findRootCause(reason), 'code');
  if (NO_SPACE.includes(code)) return true;
  if (code !== EIO) return false;
  const { bavail, bsize } = await statfs(dirname(file));
  const answer = await probeWrite(file);
  // another process may have freed space meanwhile
  return answer === 'refused' || (answer === 'taken' && bavail * bsize < GROUP_SPACE_BYTES);
}

/**
 * Says whether a full disk may have space again. When statfs does not show the limit (quotas), the
 * result is true.
 */
export async function mayHaveSpace(file: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(dirname(file));
  return bavail * bsize >= RESUME_FREE_BYTES;
}

/** Creates the error for a write on a full disk. */
export function diskFullError(file: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'exhausted',
    `disk full: no space left for ${file}, nothing was written; free some space on its file system, and writes continue automatically`,
    { cause },
  );
}

/**
 * Writes a probe file beside the data file, at the offset where the data file ends. Detects quotas
 * and limits that statfs does not show.
 * @returns `refused` when there is no space, `failed` when the disk fails for another reason.
 */
async function probeWrite(file: string): Promise<'taken' | 'refused' | 'failed'> {
  const probe = join(dirname(file), 'probe');
  let handle: FileHandle | undefined;
  try {
    handle = await open(probe, 'w', 0o600);
    const { size } = await stat(file);
    const chunk = Buffer.alloc(CHUNK_BYTES);
    for (let offset = 0; offset < GROUP_SPACE_BYTES; offset += CHUNK_BYTES)
      if (!(await writeWhole(handle, chunk, size + offset))) return 'refused';
    return 'taken';
  } catch (reason) {
    return NO_SPACE.includes(getErrno(reason)) ? 'refused' : 'failed';
  } finally {
    await handle?.close();
    await rm(probe, { force: true }).catch(() => undefined); // fails with the disk
  }
}

/** @returns False after a partial write, as at the end of the free space. */
async function writeWhole(handle: FileHandle, chunk: Buffer, position: number): Promise<boolean> {
  const { bytesWritten } = await handle.write(chunk, 0, chunk.length, position);
  return bytesWritten === chunk.length;
}

/** Node's `errno` is negative. */
function getErrno(reason: unknown): number {
  return Math.abs(Number(getProperty(reason, 'errno')));
}

/**
 * LMDB's binding hides the error of a commit in a promise that has rejected, or rejects in the same
 * event loop iteration.
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
