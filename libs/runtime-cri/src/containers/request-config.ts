import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import {
  ContainerConfigSchema,
  PodSandboxConfigSchema,
  type ContainerConfig,
  type PodSandboxConfig,
} from '../gen/runtime/v1/api_pb.js';
import { checkMountPaths, type PlannedMount } from '../volumes/mount-paths.js';
import { checkDevices } from './config/devices.js';
import { checkCapabilitiesOf } from './config/needed-capabilities.js';
import { checkNetwork, toSandboxNetwork } from './config/network.js';
import { toResources, type KernelLimits } from './config/resources.js';
import { checkSecurity, toContainerSecurity, toSandboxSecurity } from './config/security.js';
import { checkSysctls, sysctlsOf } from './config/sysctls.js';
import { ownedAs, toAnnotations, type Owner } from './labels.js';
import { checkUlimits } from './ulimits.js';

/** The log file of a container, below its log directory. */
export const LOG_FILE = '0.log';

/**
 * What can be seen of a request without a look at the machine.
 * @param capabilities - What this node has.
 * @throws kind `invalid` or `unimplemented`, naming the field.
 */
export function checkRequest(request: ContainerRequest, capabilities: readonly string[]): void {
  const { containerId, image, lease, workingDir, limits } = request;
  if (!/^[0-9a-f]{64}$/.test(containerId))
    throw new CloudlessError('invalid', 'containerId: must be 64 hex digits');
  if (image === undefined || image === '') {
    throw new CloudlessError(
      'invalid',
      'image: a container needs one; a plain command needs a node with the process runtime',
    );
  }
  if (lease !== undefined) throw leasesUnimplemented();
  if (workingDir !== undefined && !workingDir.startsWith('/')) {
    throw new CloudlessError('invalid', 'workingDir: must be an absolute path');
  }
  if (limits.pids !== undefined && !(Number.isInteger(limits.pids) && limits.pids >= 1)) {
    throw new CloudlessError('invalid', 'limits.pids: must be 1 or more');
  }
  checkSecurity(request);
  checkNetwork(request);
  checkSysctls(request);
  checkDevices(request);
  checkUlimits(request);
  checkMountPaths(request);
  checkCapabilitiesOf(request, capabilities);
}

/** No container runtime ends a container by itself when its caller is silent. */
export function leasesUnimplemented(): CloudlessError {
  return new CloudlessError(
    'unimplemented',
    'lease: this node lacks the capability disconnect.exclusive: a container runtime ends nothing by itself',
  );
}

/** The sandbox of a request: its network, its name, its logs. */
export function toSandboxConfig(
  request: ContainerRequest,
  owner: Owner,
  logDirectory: string,
): PodSandboxConfig {
  const { containerId } = request;
  return create(PodSandboxConfigSchema, {
    metadata: {
      name: containerId,
      uid: containerId,
      namespace: `cloudless-${owner.cluster}-${owner.node}`,
    },
    ...toSandboxNetwork(request),
    logDirectory,
    labels: ownedAs(owner, containerId),
    linux: { securityContext: toSandboxSecurity(request), sysctls: sysctlsOf(request) },
  });
}

/** What a container gets beside what its request says. */
export interface ContainerSurroundings {
  /** How the runtime calls the image. */
  readonly imageRef: string;
  readonly mounts: readonly PlannedMount[];
  /** Processes and threads at most; undefined: no limit. */
  readonly pids: number | undefined;
  readonly kernel: KernelLimits;
}

/** The container of a request. */
export function toContainerConfig(
  request: ContainerRequest,
  owner: Owner,
  { imageRef, mounts, pids, kernel }: ContainerSurroundings,
): ContainerConfig {
  const { containerId, command, args, env, workingDir = '' } = request;
  return create(ContainerConfigSchema, {
    metadata: { name: 'main' },
    image: { image: imageRef },
    command: [...command],
    args: [...args],
    workingDir,
    envs: Object.entries(env).map(([key, value]) => ({
      key,
      value: new TextEncoder().encode(value),
    })),
    devices: [...(request.devices ?? [])],
    mounts: mounts.map(({ inMemory: _, ...mount }) => mount),
    labels: ownedAs(owner, containerId),
    annotations: toAnnotations(request),
    logPath: LOG_FILE,
    linux: {
      resources: toResources(request, pids, kernel),
      securityContext: toContainerSecurity(request),
    },
  });
}
