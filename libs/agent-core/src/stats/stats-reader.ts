import type { SampleResult } from '@cloudless/cgroup-stats';
import type { ContainerStatus } from '@cloudless/runtime';

/** Reads what containers of this machine use. */
export interface StatsReader {
  /**
   * One sample of a running container that has a cgroup of its own.
   * @returns Undefined when it is gone.
   */
  readGroup(
    container: Pick<ContainerStatus, 'ownNetwork'> & { readonly pid: number },
  ): Promise<SampleResult | undefined>;
  /**
   * One sample for each of the sessions that these processes lead: of containers that have no
   * cgroup of their own. One call for many costs little more than for one.
   * @returns By pid; of those that are gone, nothing.
   */
  readProcesses(pids: readonly number[]): Promise<ReadonlyMap<number, SampleResult>>;
}
