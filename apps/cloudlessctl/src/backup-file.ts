import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { access, open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { verifySnapshot, type SnapshotSummary } from '@cloudless/state-store';

// Backups are larger than memory should hold, and what counts is what the disk has: so these are
// the machine's files, and not those of CliIo.

const READ_BYTES = 256 * 1024;

/**
 * Writes a backup under another name, flushes it, reads it again and compares it; only then it gets
 * its name. So a file of this name is a whole backup, also when the machine fails meanwhile.
 * @param chunks - Begun only once it is sure that a file may be made there.
 * @throws kind `exists` when there is such a file already and `force` is not set; `precondition`
 *   when what came is not whole.
 */
export async function writeBackup(
  path: string,
  chunks: () => AsyncIterable<Uint8Array>,
  force: boolean,
): Promise<SnapshotSummary> {
  if (!force && (await exists(path))) {
    throw new CloudlessError(
      'exists',
      `${path} is there already; name another file, or replace it with --force`,
    );
  }
  const draft = `${path}.${randomBytes(4).toString('hex')}.partial`;
  try {
    await writeFlushed(draft, chunks);
    const summary = await verifySnapshot(readChunks(draft));
    await rename(draft, path);
    await flushDirectory(dirname(resolve(path)));
    return summary;
  } finally {
    await rm(draft, { force: true });
  }
}

/** The bytes of a file, in pieces. @throws kind `notFound` or `denied`, naming it. */
export async function* readChunks(path: string): AsyncGenerator<Uint8Array> {
  const file = await open(path, 'r').catch((reason: unknown) => {
    const { code } = reason as { readonly code?: unknown };
    if (code === 'ENOENT')
      throw new CloudlessError('notFound', `there is no file ${path}`, { cause: reason });
    throw new CloudlessError('denied', `${path} cannot be read: ${errorMessageOf(reason)}`, {
      cause: reason,
    });
  });
  try {
    for (;;) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(READ_BYTES), 0, READ_BYTES);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/** A backup holds all that the cluster knows: only its owner may read it. */
async function writeFlushed(path: string, chunks: () => AsyncIterable<Uint8Array>): Promise<void> {
  const cannot = (reason: unknown): never => {
    const { code } = reason as { readonly code?: unknown };
    const kind = code === 'ENOSPC' || code === 'EDQUOT' ? 'exhausted' : 'denied';
    throw new CloudlessError(kind, `${path} cannot be written: ${errorMessageOf(reason)}`, {
      cause: reason,
    });
  };
  const file = await open(path, 'wx', 0o600).catch(cannot);
  try {
    for await (const chunk of chunks()) await writeWhole(file, chunk).catch(cannot);
    await file.sync().catch(cannot);
  } finally {
    await file.close();
  }
}

async function writeWhole(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let from = 0; from < chunk.byteLength;) from += (await file.write(chunk, from)).bytesWritten;
}

async function flushDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function exists(path: string): Promise<boolean> {
  return access(path, constants.F_OK).then(
    () => true,
    () => false,
  );
}
