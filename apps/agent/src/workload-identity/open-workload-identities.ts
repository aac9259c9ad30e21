import type { Log } from '@cloudless/base';
import type { ContainerRuntime } from '@cloudless/runtime';
import { mountMemory, unmountMemory } from '@cloudless/runtime-cri';
import { FileWorkloadIdentities } from './file-workload-identities.js';

/** Size of the tmpfs of a replica in bytes: several versions of the files. */
const SIZE_BYTES = 1024 * 1024;

/**
 * Opens the identities of replicas in a data directory.
 * @param runtime - Tells whether containers see what the agent mounts. Undefined: nothing is mounted
 *   any more.
 */
export function openWorkloadIdentities(
  dataDir: string,
  runtime: Pick<ContainerRuntime, 'capabilities'> | undefined,
  log: Log,
): FileWorkloadIdentities {
  const memory = {
    isAvailable: () => runtime?.capabilities().includes('volumes.memory') ?? false,
    mount: (directory: string) =>
      mountMemory('spec.identity', directory, {
        sizeBytes: SIZE_BYTES,
        mode: 0o755,
        noExec: true,
        noSwap: true,
      }),
    unmount: unmountMemory,
  };
  return new FileWorkloadIdentities(dataDir, memory, log.child({ component: 'workload-identity' }));
}
