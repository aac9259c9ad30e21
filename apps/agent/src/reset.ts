import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, silentLog } from '@cloudless/base';
import { openProcessRuntime } from '@cloudless/runtime-process';
import { systemClock, systemRandom } from '@cloudless/system';
import { takeDataDirectory } from './data-directory.js';
import { RUNTIME_FOLDER } from './run-agent.js';

/**
 * Makes an agent forget its cluster and its orders: ends what it runs, and removes its data.
 * @throws kind `precondition` while an agent holds the directory, `notFound` when there is none.
 */
export async function resetAgent(dataDir: string, supervisorCommand: readonly string[]): Promise<void> {
  if (!existsSync(dataDir)) throw new CloudlessError('notFound', `there is no data directory ${dataDir}`);
  const data = await takeDataDirectory(dataDir);
  try {
    const directory = join(dataDir, RUNTIME_FOLDER);
    if (existsSync(directory)) {
      const runtime = await openProcessRuntime({
        directory,
        supervisorCommand,
        clock: systemClock,
        random: systemRandom,
        log: silentLog,
      });
      await runtime.shutdown();
    }
    // Only what an agent has made: a directory named by mistake keeps its files.
    for (const name of ['identity.json', 'identity.json.draft', 'replicas', RUNTIME_FOLDER]) {
      await rm(join(dataDir, name), { recursive: true, force: true });
    }
  } finally {
    await data.release();
  }
}
