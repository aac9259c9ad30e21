import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const createdPaths: string[] = [];

/** Creates an empty directory with mode 0700. {@link removeTemporaryDirectories} removes it. */
export async function createTemporaryDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'cloudless-store-'));
  createdPaths.push(directory);
  return directory;
}

/** Removes all temporary directories; for `afterAll`. */
export async function removeTemporaryDirectories(): Promise<void> {
  for (const directory of createdPaths.splice(0))
    await rm(directory, { recursive: true, force: true });
}
