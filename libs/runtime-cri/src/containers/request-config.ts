import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import {
  ContainerConfigSchema,
  type LinuxContainerResourcesSchema,
  NamespaceMode,
  PodSandboxConfigSchema,
  SecurityProfile_ProfileType,
  type ContainerConfig,
  type PodSandboxConfig,
} from '../gen/runtime/v1/api_pb.js';
import { ownedAs, toAnnotations, type Owner } from './labels.js';

/** The log file of a container, below its log directory. */
export const LOG_FILE = '0.log';
const CPU_PERIOD_USEC = 100_000;
/** Shares of one whole CPU, as cgroup v1 counts; runtimes convert for v2. */
const SHARES_PER_CPU = 1024;
/** Fewer shares, and less quota, the kernel does not take. */
const MIN_SHARES = 2;
const MIN_QUOTA_USEC = 1_000;
/** What a process of a container must not read or write below /proc and /sys; as Docker and Kubernetes have it. */
const MASKED_PATHS = [
  '/proc/asound',
  '/proc/acpi',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/sys/firmware',
  '/sys/devices/virtual/powercap',
];
const READONLY_PATHS = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];
/** Own network for the sandbox, own processes for the container. */
const NAMESPACES = { network: NamespaceMode.POD, pid: NamespaceMode.CONTAINER, ipc: NamespaceMode.POD };
const SECCOMP = { profileType: SecurityProfile_ProfileType.RuntimeDefault };

/** @throws kind `invalid` or `unimplemented`, naming the field. */
export function checkRequest({ containerId, image, lease, workingDir }: ContainerRequest): void {
  if (!/^[0-9a-f]{64}$/.test(containerId)) throw new CloudlessError('invalid', 'containerId: must be 64 hex digits');
  if (image === undefined || image === '') {
    throw new CloudlessError('invalid', 'image: a container needs one; a plain command needs a node with the process runtime');
  }
  if (lease !== undefined) throw leasesUnimplemented();
  if (workingDir !== undefined && !workingDir.startsWith('/')) {
    throw new CloudlessError('invalid', 'workingDir: must be an absolute path');
  }
}

/** No container runtime ends a container by itself when its caller is silent. */
export function leasesUnimplemented(): CloudlessError {
  return new CloudlessError(
    'unimplemented',
    'lease: this node lacks the capability disconnect.exclusive: a container runtime ends nothing by itself',
  );
}

/** The sandbox of a request: its network, its name, its logs. */
export function toSandboxConfig(request: ContainerRequest, owner: Owner, logDirectory: string): PodSandboxConfig {
  const { containerId } = request;
  return create(PodSandboxConfigSchema, {
    metadata: { name: containerId, uid: containerId, namespace: `cloudless-${owner.cluster}-${owner.node}` },
    hostname: containerId.slice(0, 12),
    logDirectory,
    labels: ownedAs(owner, containerId),
    linux: { securityContext: { namespaceOptions: NAMESPACES, seccomp: SECCOMP } },
  });
}

/** The container of a request. @param canLimitSwap - Whether the kernel can keep it from swapping. */
export function toContainerConfig(request: ContainerRequest, owner: Owner, canLimitSwap: boolean): ContainerConfig {
  const { containerId, image = '', command, args, env, workingDir = '', limits } = request;
  return create(ContainerConfigSchema, {
    metadata: { name: 'main' },
    image: { image },
    command: [...command],
    args: [...args],
    workingDir,
    envs: Object.entries(env).map(([key, value]) => ({ key, value: new TextEncoder().encode(value) })),
    labels: ownedAs(owner, containerId),
    annotations: toAnnotations(request),
    logPath: LOG_FILE,
    linux: {
      resources: toResources(limits, canLimitSwap),
      securityContext: {
        namespaceOptions: NAMESPACES,
        seccomp: SECCOMP,
        maskedPaths: MASKED_PATHS,
        readonlyPaths: READONLY_PATHS,
      },
    },
  });
}

function toResources(
  { cpuMillis, memoryBytes }: ContainerRequest['limits'],
  canLimitSwap: boolean,
): MessageInitShape<typeof LinuxContainerResourcesSchema> {
  return {
    ...(cpuMillis === undefined ? {} : toCpu(cpuMillis)),
    ...(memoryBytes === undefined ? {} : { memoryLimitInBytes: BigInt(memoryBytes) }),
    // Memory and swap together: as much as memory alone.
    ...(memoryBytes === undefined || !canLimitSwap ? {} : { memorySwapLimitInBytes: BigInt(memoryBytes) }),
  };
}

function toCpu(cpuMillis: number): { readonly cpuPeriod: bigint; readonly cpuQuota: bigint; readonly cpuShares: bigint } {
  return {
    cpuPeriod: BigInt(CPU_PERIOD_USEC),
    cpuQuota: BigInt(Math.max(MIN_QUOTA_USEC, Math.round((cpuMillis * CPU_PERIOD_USEC) / 1_000))),
    cpuShares: BigInt(Math.max(MIN_SHARES, Math.round((cpuMillis * SHARES_PER_CPU) / 1_000))),
  };
}
