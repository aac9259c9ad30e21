import { existsSync, readdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, silentLog } from '@cloudless/base';
import { openProcessRuntime } from '@cloudless/runtime-process';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import {
  CONTAINERS_FOLDER,
  getContainerRecordPath,
  readContainerRecord,
  VOLUMES_FOLDER,
} from './runtimes/container-record.js';
import { IDENTITY_FOLDER } from './identity/identity-directory.js';
import { lockDataDirectory } from './data/data-directory.js';
import { DiskReserve } from './data/disk-reserve.js';
import { NETWORK_FOLDER } from './network/proxy-program.js';
import { removeNetworkProxy } from './network/remove-network-proxy.js';
import { openContainers, RUNTIME_FOLDER } from './runtimes/agent-runtimes.js';
import { COPIES_FOLDER, COPIES_KEY } from './replica-files/local-copies.js';
import {
  openReplicaFiles,
  readReplicaFilesPlace,
  REPLICA_FILES_FOLDER,
} from './replica-files/open-replica-files.js';
import { openWorkloadIdentities } from './workload-identity/open-workload-identities.js';

/** Folder of named volumes; a reset keeps this folder. */
const NAMED_VOLUMES = 'named';

/**
 * Removes an agent from its cluster: stops and removes its processes and containers and deletes its
 * data, also its key and certificate, except named volumes.
 * @returns Directory of the kept volumes; undefined when there are none.
 * @throws kind `precondition` while an agent holds the directory or when its containers cannot be
 *   reached; `unavailable` when the supervisor of its processes does not answer; `notFound` when
 *   the directory does not exist.
 */
export async function resetAgent(
  dataDir: string,
  supervisorCommand: readonly string[],
): Promise<string | undefined> {
  if (!existsSync(dataDir))
    throw new CloudlessError('notFound', `there is no data directory ${dataDir}`);
  const lock = await lockDataDirectory(dataDir);
  try {
    // The rest of the reset may need space, for example to start the supervisor of the processes.
    await new DiskReserve(dataDir).release();
    await removeContainers(dataDir);
    await removeProcesses(join(dataDir, RUNTIME_FOLDER), supervisorCommand);
    await removeNetworkProxy(join(dataDir, NETWORK_FOLDER), systemClock);
    await openWorkloadIdentities(dataDir, undefined, silentLog).removeAll();
    await openReplicaFiles(dataDir, readReplicaFilesPlace(process.env), silentLog).removeAll();
    const namedVolumes = join(dataDir, VOLUMES_FOLDER, NAMED_VOLUMES);
    const keepsVolumes = existsSync(namedVolumes) && readdirSync(namedVolumes).length > 0;
    // Deletes only files that agents create, so that a directory given by mistake keeps its files.
    const agentFiles = [
      'identity.json',
      'identity.json.draft',
      IDENTITY_FOLDER,
      REPLICA_FILES_FOLDER,
      COPIES_FOLDER,
      COPIES_KEY,
      'replicas',
      RUNTIME_FOLDER,
      CONTAINERS_FOLDER,
      NETWORK_FOLDER,
    ];
    for (const name of [
      ...agentFiles,
      keepsVolumes ? join(VOLUMES_FOLDER, 'empty') : VOLUMES_FOLDER,
    ]) {
      await rm(join(dataDir, name), { recursive: true, force: true });
    }
    return keepsVolumes ? namedVolumes : undefined;
  } finally {
    await lock.release();
  }
}

/** Removes the containers in the recorded container runtime; none when there is no record. */
async function removeContainers(dataDir: string): Promise<void> {
  const record = readContainerRecord(dataDir);
  if (record === undefined) return;
  try {
    await (await openContainers(record, dataDir, silentLog)).shutdown();
  } catch (cause) {
    throw new CloudlessError(
      'precondition',
      `containers of this agent may be running in the container runtime at ${record.socketPath} and cannot be removed; start the runtime and ` +
        `reset again, or leave the containers there and remove ${getContainerRecordPath(dataDir)}`,
      { cause },
    );
  }
}

async function removeProcesses(
  directory: string,
  supervisorCommand: readonly string[],
): Promise<void> {
  if (!existsSync(directory)) return;
  const runtime = await openProcessRuntime({
    directory,
    supervisorCommand,
    clock: systemClock,
    random: systemRandom,
    log: silentLog,
  });
  await runtime.shutdown();
}
