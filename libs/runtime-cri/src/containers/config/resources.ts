import type { MessageInitShape } from '@bufbuild/protobuf';
import type { ContainerRequest } from '@cloudless/runtime';
import type { LinuxContainerResourcesSchema } from '../../gen/runtime/v1/api_pb.js';
import { toStartingLimit } from '../../system/pids-limit.js';

/** Limits that the kernel supports, and the memory of the machine. */
export interface KernelLimits {
  /** True when the kernel can limit the swap of a cgroup. */
  readonly swap: boolean;
  /** True with cgroup v2, where the container runtime sets the limit of processes. */
  readonly unifiedPids: boolean;
  /** Total memory of the machine in bytes. */
  readonly memoryBytes: number;
}

/** Period of CPU quotas, the default of the kernel. */
const CPU_PERIOD_USEC = 100_000;
/** Shares of one whole CPU in cgroup v1. Container runtimes convert shares to weights for v2. */
const SHARES_PER_CPU = 1024;
/** Smallest and largest shares, and smallest quota, that the kernel accepts. */
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
const MIN_QUOTA_USEC = 1_000;

/**
 * Builds the resource limits of a container. CPU shares follow from the reservation, so that a
 * higher limit gives no advantage when CPU time is short. Without a reservation the default of the
 * runtime applies.
 * @param pids - Limit on processes and threads; undefined for no limit.
 */
export function toResources(
  { requests, limits }: Pick<ContainerRequest, 'requests' | 'limits'>,
  pids: number | undefined,
  kernel: KernelLimits,
): MessageInitShape<typeof LinuxContainerResourcesSchema> {
  const { cpuMillis, memoryBytes } = limits;
  return {
    ...(requests?.cpuMillis === undefined ? {} : { cpuShares: toShares(requests.cpuMillis) }),
    ...(cpuMillis === undefined ? {} : toCpuQuota(cpuMillis)),
    ...(memoryBytes === undefined ? {} : { memoryLimitInBytes: BigInt(memoryBytes) }),
    // This limit covers memory and swap together. It equals the memory limit, so there is no swap.
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
 * Smallest and largest score. The kernel ends the process with the highest score first: a container
 * always comes before the container runtime and after processes with the score 1000.
 */
const MIN_OOM_SCORE = 2;
const MAX_OOM_SCORE = 999;

/**
 * Returns the `oom_score_adj`: 1000 minus the thousandths of the machine's memory that are
 * reserved. When memory runs out, the kernel therefore ends the container first whose use exceeds
 * its reservation most.
 * @see Kubernetes, "Node-pressure Eviction", the formula of burstable pods;
 *   proc_pid_oom_score_adj(5)
 */
function toOomScore(reservedBytes: number, memoryBytes: number): bigint {
  const score = Math.floor(1_000 - (1_000 * reservedBytes) / memoryBytes);
  return BigInt(Math.min(MAX_OOM_SCORE, Math.max(MIN_OOM_SCORE, score)));
}

function toCpuQuota(cpuMillis: number): { readonly cpuPeriod: bigint; readonly cpuQuota: bigint } {
  const quotaUsec = Math.round((cpuMillis * CPU_PERIOD_USEC) / 1_000);
  return {
    cpuPeriod: BigInt(CPU_PERIOD_USEC),
    cpuQuota: BigInt(Math.max(MIN_QUOTA_USEC, quotaUsec)),
  };
}

function toShares(cpuMillis: number): bigint {
  return BigInt(
    Math.min(MAX_SHARES, Math.max(MIN_SHARES, Math.floor((cpuMillis * SHARES_PER_CPU) / 1_000))),
  );
}
