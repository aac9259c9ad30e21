import { open } from 'node:fs/promises';

/** Flushes a folder to disk: only then is a rename or removal in the folder durable. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
