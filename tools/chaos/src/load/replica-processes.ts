import { readFileSync, readdirSync } from 'node:fs';
import { findProcessFaults, type ReplicaProcess } from '../checks/replica-processes.js';
import { retry } from '../retry.js';
import type { World } from '../world/world.js';
import { readReplicas } from './workloads.js';

/** Time between two comparisons, milliseconds. */
const POLL_MS = 200;

/**
 * Waits until the processes on all machines are exactly those of the replicas that the cluster
 * lists: the list of processes comes from the kernel.
 * @throws with the first difference when the processes differ for longer.
 */
export async function waitUntilProcessesMatch(world: World, withinMs: number): Promise<void> {
  const compare = async (): Promise<void> => {
    const replicas = await readReplicas(world, withinMs);
    const wanted = new Map([...replicas].map(([name, all]) => [name, all.map(({ id }) => id)]));
    const [fault] = findProcessFaults(listReplicaProcesses(world.directory), wanted);
    if (fault !== undefined) throw new Error(fault);
  };
  await retry(withinMs, compare, POLL_MS);
}

/** Lists the main processes of replicas whose agents have their data below a directory. */
function listReplicaProcesses(directory: string): readonly ReplicaProcess[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const [environment, command] = [readProcFile(name, 'environ'), readProcFile(name, 'cmdline')];
      const find = (key: string): string | undefined =>
        environment.find((each) => each.startsWith(`${key}=`))?.slice(key.length + 1);
      const [workload, replicaId] = [find('CLOUDLESS_WORKLOAD'), find('CLOUDLESS_REPLICA_ID')];
      const isMain = command[0]?.endsWith('node') === true;
      const isOfCluster = environment.some((each) => each.includes(directory));
      return workload === undefined || replicaId === undefined || !isMain || !isOfCluster
        ? []
        : [{ pid: Number(name), workload, replicaId }];
    });
}

/** Returns the texts of a file of a process; nothing when the process has ended. */
function readProcFile(pid: string, file: string): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0');
  } catch {
    return [];
  }
}
