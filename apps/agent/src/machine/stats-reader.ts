import type { StatsReader } from '@cloudless/agent-core';
import type { Clock } from '@cloudless/base';
import { createContainerReader, createProcessReader } from '@cloudless/cgroup-reader';

/**
 * Creates a reader of the resource usage of containers on this machine, from cgroup files and
 * `/proc`.
 */
export function openStatsReader(clock: Clock): StatsReader {
  const containers = createContainerReader({ clock });
  const processes = createProcessReader({ clock });
  return {
    readCgroup: ({ pid, ownNetwork }) => containers.read({ pid, ownNetwork: ownNetwork === true }),
    readProcesses: (pids) => processes.read(pids),
  };
}
