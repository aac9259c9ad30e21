import type { MessageInitShape } from '@bufbuild/protobuf';
import type { ContainerRequest } from '@cloudless/runtime';
import type { LinuxContainerResourcesSchema } from '../../gen/runtime/v1/api_pb.js';
import { whileStarting } from '../../system/pids-limit.js';

/** What the kernel of the machine can limit, and how. */
export interface KernelLimits {
  /** It can keep a group from swapping. */
  readonly swap: boolean;
  /** Processes are limited by a file of cgroup v2, which a runtime is asked to write. */
  readonly unifiedPids: boolean;
  /** All memory of the machine. */
  readonly memoryBytes: number;
}

const CPU_PERIOD_USEC = 100_000;
/** Shares of one whole CPU, as cgroup v1 counts; runtimes convert for v2. */
const SHARES_PER_CPU = 1024;
/** Fewer or more shares, and less quota, the kernel does not take. */
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
const MIN_QUOTA_USEC = 1_000;

/**
 * The limits of a container, and its share of CPU time: of what was reserved, so that a limit above
 * it buys nothing when there is not enough. Nothing reserved: the runtime's default.
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
    // Memory and swap together: as much as memory alone.
    ...(memoryBytes === undefined || !kernel.swap
      ? {}
      : { memorySwapLimitInBytes: BigInt(memoryBytes) }),
    ...(requests?.memoryBytes === undefined
      ? {}
      : { oomScoreAdj: toOomScore(requests.memoryBytes, kernel.memoryBytes) }),
    ...(pids === undefined || !kernel.unifiedPids
      ? {}
      : { unified: { 'pids.max': String(whileStarting(pids)) } }),
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
