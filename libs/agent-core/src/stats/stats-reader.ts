import type { SampleResult } from '@cloudless/cgroup-stats';
import type { ContainerStatus } from '@cloudless/runtime';

/** Reads the resource usage of containers of this machine. */
export interface StatsReader {
  /**
   * Samples a running container that has its own cgroup.
   * @returns Undefined when the container no longer exists.
   */
  readCgroup(
    container: Pick<ContainerStatus, 'ownNetwork'> & { readonly pid: number },
  ): Promise<SampleResult | undefined>;
  /**
   * Samples containers without their own cgroup, each by the process session that its main process
   * leads. One call for many containers costs little more than a call for one container.
   * @returns Samples by pid; containers that no longer exist are left out.
   */
  readProcesses(pids: readonly number[]): Promise<ReadonlyMap<number, SampleResult>>;
}
