import type { StatsReader } from '@cloudless/agent-core';
import type { Clock } from '@cloudless/base';
import { createContainerReader, createProcessReader } from '@cloudless/cgroup-reader';

/** Reads the resource usage of containers of this machine from kernel files. */
export function openStatsReader(clock: Clock): StatsReader {
  const groups = createContainerReader({ clock });
  const processes = createProcessReader({ clock });
  return {
    readGroup: ({ pid, ownNetwork }) => groups.read({ pid, ownNetwork: ownNetwork === true }),
    readProcesses: (pids) => processes.read(pids),
  };
}
