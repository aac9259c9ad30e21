import { open, rm, stat, statfs, type FileHandle } from 'node:fs/promises';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { CloudlessError } from '@cloudless/base';

/** LMDB's "environment mapsize limit reached". @see lmdb.h, MDB_MAP_FULL */
const MDB_MAP_FULL = -30_792;

const { EDQUOT, EFBIG, EIO, ENOSPC } = constants.errno;
const NO_SPACE: readonly unknown[] = [MDB_MAP_FULL, ENOSPC, EDQUOT, EFBIG];

/** More than any group commit writes, with all its pages. */
const GROUP_ROOM_BYTES = 64 * 1024 * 1024;
/**
 * A full disk is left alone until so much is free: else each small write that fits would be
 * followed by one that does not.
 */
const REOPEN_BYTES = 4 * 1024 * 1024;
const CHUNK_BYTES = 1024 * 1024;

/**
 * Whether LMDB gave up a transaction because there was no room for it, so that nothing of it was
 * committed. LMDB reports a write that the disk took in part as EIO, so the room there is decides
 * what that means.
 * @param reason - What LMDB rejected with.
 * @param file - The data file; need not exist.
 * @see mdb.c, mdb_page_flush, "short write, filesystem full?"
 */
export async function isOutOfSpace(reason: unknown, file: string): Promise<boolean> {
  const code = propertyOf(await rootCauseOf(reason), 'code');
  if (NO_SPACE.includes(code)) return true;
  if (code !== EIO) return false;
  const { bavail, bsize } = await statfs(dirname(file));
  const answer = await tryToWrite(file);
  // somebody may have made room meanwhile
  return answer === 'refused' || (answer === 'taken' && bavail * bsize < GROUP_ROOM_BYTES);
}

/**
 * Whether a disk that was full has room for some commits again. Where statfs does not show why it
 * was full: perhaps.
 */
export async function mayHaveRoom(file: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(dirname(file));
  return bavail * bsize >= REOPEN_BYTES;
}

/** The error of a write that found no room. */
export function noRoomFor(file: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'exhausted',
    `disk full: no room left for ${file}, nothing was written; free some space on its file system, writes then go on by themselves`,
    { cause },
  );
}

/**
 * Writes a file beside the data file where the data file ends. Finds quotas and limits that statfs
 * does not show.
 * @returns `refused` for want of room, `failed` when the disk fails for another reason.
 */
async function tryToWrite(file: string): Promise<'taken' | 'refused' | 'failed'> {
  const probe = join(dirname(file), 'probe');
  let handle: FileHandle | undefined;
  try {
    handle = await open(probe, 'w', 0o600);
    const { size } = await stat(file);
    const chunk = Buffer.alloc(CHUNK_BYTES);
    for (let offset = 0; offset < GROUP_ROOM_BYTES; offset += CHUNK_BYTES)
      if (!(await writeWhole(handle, chunk, size + offset))) return 'refused';
    return 'taken';
  } catch (reason) {
    return NO_SPACE.includes(numberOf(reason)) ? 'refused' : 'failed';
  } finally {
    await handle?.close();
    await rm(probe, { force: true }).catch(() => undefined); // fails with the disk
  }
}

/** @returns False when it was taken only in part, as it is where the room ends. */
async function writeWhole(handle: FileHandle, chunk: Buffer, position: number): Promise<boolean> {
  const { bytesWritten } = await handle.write(chunk, 0, chunk.length, position);
  return bytesWritten === chunk.length;
}

/** Node's `errno` is negative. */
function numberOf(reason: unknown): number {
  return Math.abs(Number(propertyOf(reason, 'errno')));
}

/**
 * LMDB's binding hides the error of a commit behind a promise that has rejected, or is about to in
 * the same turn.
 */
async function rootCauseOf(reason: unknown): Promise<unknown> {
  const hidden = propertyOf(reason, 'commitError');
  if (!(hidden instanceof Promise)) return reason;
  return hidden.then(
    () => reason,
    (cause: unknown) => cause,
  );
}

function propertyOf(reason: unknown, name: string): unknown {
  return typeof reason === 'object' && reason !== null
    ? (reason as Record<string, unknown>)[name]
    : undefined;
}
