import { rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorKindOf } from '@cloudless/base';
import { isNoSpace, type DiskReserve, type writeFlushed } from './disk-reserve.js';
import { syncFolder } from './sync-folder.js';

export interface ReserveWriteOptions {
  readonly reserve: DiskReserve;
  readonly writeFile: typeof writeFlushed;
  /** Suffix of the file that becomes the new file. */
  readonly draftSuffix: string;
  /** True: the reserve keeps no content of the file that is replaced. Default: false. */
  readonly isSecret?: boolean;
}

/**
 * Creates or replaces a file, whole or not at all, with the space of the disk reserve. The file is on
 * disk when the promise resolves.
 * @returns False when the reserve is not enough.
 */
export function writeFromReserve(
  path: string,
  bytes: Uint8Array,
  { reserve, writeFile, draftSuffix, isSecret = false }: ReserveWriteOptions,
): Promise<boolean> {
  let taken: string | undefined;
  const overwrite = async (draft: string): Promise<void> => {
    taken = await reserve.take(draft, bytes.length);
    await writeFile(draft, bytes, 'r+');
    await reserve.returnReplaced(path, taken);
  };
  const releaseAndWrite = async (draft: string): Promise<void> => {
    taken = undefined;
    await reserve.release();
    await writeFile(draft, bytes, 'w');
  };
  // One write after the other, so that each leaves its file of the reserve to the next.
  return reserve.runAlone(async () => {
    // A file system that never overwrites in place needs free space, which the release makes.
    for (const write of [overwrite, releaseAndWrite]) {
      try {
        await replaceFile(path, draftSuffix, write);
        if (isSecret && taken !== undefined) await reserve.erase(taken);
        return true;
      } catch (reason) {
        if (!isNoSpace(reason) && errorKindOf(reason) !== 'exhausted') throw reason;
      }
    }
    return false;
  });
}

/**
 * Replaces a file with a draft that `write` has written and flushed: a crash leaves the old or the
 * new content. A failed write leaves no draft.
 */
export async function replaceFile(
  path: string,
  draftSuffix: string,
  write: (draft: string) => Promise<void>,
): Promise<void> {
  const draft = `${path}${draftSuffix}`;
  try {
    await write(draft);
    await rename(draft, path);
  } catch (reason) {
    // The failure of the write is reported, also when the draft cannot be removed.
    await rm(draft, { force: true }).catch(() => undefined);
    throw reason;
  }
  await syncFolder(dirname(path));
}
