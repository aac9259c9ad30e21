import { open } from 'node:fs/promises';

/** Flushes a directory, so that its entries are still there after a power failure. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
