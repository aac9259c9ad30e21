import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { access, open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { CloudlessError, errorCodeOf, errorMessageOf } from '@cloudless/base';
import { verifySnapshot, type SnapshotSummary } from '@cloudless/state-store';

// A backup may be larger than memory and must be flushed to the disk. So this file uses node:fs
// directly instead of the file access of CliIo.

/** Size of one read: large enough that the number of reads does not matter. */
const READ_BYTES = 256 * 1024;

/**
 * Writes a backup to a temporary file, flushes the file, verifies its content and renames it to
 * `path`. A file named `path` is therefore always complete, even after a crash.
 * @param chunks - Opens the backup. Called only when `path` may be written, so that a refused
 *   backup causes no work for the coordinator.
 * @param force - True replaces an existing file.
 * @throws {@link CloudlessError} of kind `exists` when `path` exists and `force` is false,
 *   `precondition` when the received backup is damaged or incomplete, `exhausted` when the disk or
 *   the quota is full, and `denied` when the file cannot be written for another reason. An error of
 *   `chunks` is thrown unchanged.
 */
export function writeBackup(
  path: string,
  chunks: () => AsyncIterable<Uint8Array>,
  force: boolean,
): Promise<SnapshotSummary> {
  return writeVerified(path, chunks, force, verifySnapshot);
}

/**
 * Writes chunks to a file, as {@link writeBackup} does.
 * @param verify - Reads the written file, and throws when the content is damaged or incomplete.
 * @returns The result of `verify`.
 */
export async function writeVerified<Summary>(
  path: string,
  chunks: () => AsyncIterable<Uint8Array>,
  force: boolean,
  verify: (chunks: AsyncIterable<Uint8Array>) => Promise<Summary>,
): Promise<Summary> {
  if (!force && (await fileExists(path))) {
    throw new CloudlessError(
      'exists',
      `${path} already exists; choose another file, or overwrite it with --force`,
    );
  }
  const temporaryPath = `${path}.${randomBytes(4).toString('hex')}.partial`;
  try {
    await writeAndFlush(temporaryPath, chunks);
    const summary = await verify(readChunks(temporaryPath));
    await rename(temporaryPath, path);
    await flushDirectory(dirname(resolve(path)));
    return summary;
  } finally {
    await rm(temporaryPath, { force: true });
  }
}

/**
 * Reads a file in chunks of at most 256 KiB.
 * @throws {@link CloudlessError} of kind `notFound`, `invalid` for a directory, or `denied`, with a
 *   message that names the file.
 */
export async function* readChunks(path: string): AsyncGenerator<Uint8Array> {
  const file = await open(path, 'r').catch((reason: unknown) => {
    const code = errorCodeOf(reason);
    if (code === 'ENOENT')
      throw new CloudlessError('notFound', `file ${path} does not exist`, { cause: reason });
    throw new CloudlessError('denied', `cannot read ${path}: ${errorMessageOf(reason)}`, {
      cause: reason,
    });
  });
  try {
    if ((await file.stat()).isDirectory())
      throw new CloudlessError('invalid', `${path} is a directory; give the file of a backup`);
    for (;;) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(READ_BYTES), 0, READ_BYTES);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/** Creates the file with mode 0600, because a backup contains the state of the whole cluster. */
async function writeAndFlush(path: string, chunks: () => AsyncIterable<Uint8Array>): Promise<void> {
  const rethrow = (reason: unknown): never => {
    const code = errorCodeOf(reason);
    const kind = code === 'ENOSPC' || code === 'EDQUOT' ? 'exhausted' : 'denied';
    throw new CloudlessError(kind, `cannot write ${path}: ${errorMessageOf(reason)}`, {
      cause: reason,
    });
  };
  const file = await open(path, 'wx', 0o600).catch(rethrow);
  try {
    for await (const chunk of chunks()) await writeChunk(file, chunk).catch(rethrow);
    await file.sync().catch(rethrow);
  } finally {
    await file.close();
  }
}

/** Writes a whole chunk. One call of FileHandle.write may write only a part. */
async function writeChunk(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let offset = 0; offset < chunk.byteLength;)
    offset += (await file.write(chunk, offset)).bytesWritten;
}

/** Flushes a directory, so that a renamed file survives a crash. */
async function flushDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function fileExists(path: string): Promise<boolean> {
  return access(path, constants.F_OK).then(
    () => true,
    () => false,
  );
}
