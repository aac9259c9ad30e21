import type { MessageInitShape } from '@bufbuild/protobuf';
import type { ContainerRequest } from '@cloudless/runtime';
import type { LinuxContainerResourcesSchema } from '../../gen/runtime/v1/api_pb.js';
import { toStartingLimit } from '../../system/pids-limit.js';

/** Limits that the kernel of the machine supports. */
export interface KernelLimits {
  /** Whether the kernel can keep a cgroup from swapping. */
  readonly swap: boolean;
  /** Whether processes are limited by a file of cgroup v2, which the runtime writes. */
  readonly unifiedPids: boolean;
  /** Total memory of the machine. */
  readonly memoryBytes: number;
}

const CPU_PERIOD_USEC = 100_000;
/** Shares of one whole CPU, as cgroup v1 counts; runtimes convert for v2. */
const SHARES_PER_CPU = 1024;
/** Smallest and largest shares, and smallest quota, that the kernel accepts. */
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
const MIN_QUOTA_USEC = 1_000;

/**
 * Builds the resource limits of a container. CPU shares follow from the reservation, so that a
 * higher limit gives no advantage when CPU time is short. Without a reservation the default of the
 * runtime applies.
 * @param pids - Processes and threads; undefined: no limit.
 */
export function toResources(
  { requests, limits }: Pick<ContainerRequest, 'requests' | 'limits'>,
  pids: number | undefined,
  kernel: KernelLimits,
): MessageInitShape<typeof LinuxContainerResourcesSchema> {
  const { cpuMillis, memoryBytes } = limits;
  const quota =
    cpuMillis === undefined
      ? undefined
      : Math.max(MIN_QUOTA_USEC, Math.round((cpuMillis * CPU_PERIOD_USEC) / 1_000));
  return {
    ...(requests?.cpuMillis === undefined ? {} : { cpuShares: toShares(requests.cpuMillis) }),
    ...(quota === undefined ? {} : { cpuPeriod: BigInt(CPU_PERIOD_USEC), cpuQuota: BigInt(quota) }),
    ...(memoryBytes === undefined ? {} : { memoryLimitInBytes: BigInt(memoryBytes) }),
    // The limit for memory and swap together equals the memory limit: no swap.
    ...(memoryBytes === undefined || !kernel.swap
      ? {}
      : { memorySwapLimitInBytes: BigInt(memoryBytes) }),
    ...(requests?.memoryBytes === undefined
      ? {}
      : { oomScoreAdj: toOomScore(requests.memoryBytes, kernel.memoryBytes) }),
    ...(pids === undefined || !kernel.unifiedPids
      ? {}
      : { unified: { 'pids.max': String(toStartingLimit(pids)) } }),
  };
}

/**
 * Above the score of container runtimes, and below the score of processes that the kernel ends
 * first.
 */
const MIN_OOM_SCORE = 2;
const MAX_OOM_SCORE = 999;

/**
 * When memory runs out, the kernel first ends the container that exceeds its reservation most: the
 * score subtracts the reservation from the use.
 * @see Kubernetes, "Node-pressure Eviction", the formula of burstable pods;
 *   proc_pid_oom_score_adj(5)
 */
function toOomScore(reservedBytes: number, memoryBytes: number): bigint {
  const score = Math.floor(1_000 - (1_000 * reservedBytes) / memoryBytes);
  return BigInt(Math.min(MAX_OOM_SCORE, Math.max(MIN_OOM_SCORE, score)));
}

function toShares(cpuMillis: number): bigint {
  return BigInt(
    Math.min(MAX_SHARES, Math.max(MIN_SHARES, Math.floor((cpuMillis * SHARES_PER_CPU) / 1_000))),
  );
}
