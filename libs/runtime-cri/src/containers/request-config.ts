import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import { SIGNAL_CAPABILITY, type ContainerRequest } from '@cloudless/runtime';
import {
  ContainerConfigSchema,
  PodSandboxConfigSchema,
  type ContainerConfig,
  type PodSandboxConfig,
} from '../gen/runtime/v1/api_pb.js';
import { checkMountPaths, type ContainerMount } from '../volumes/mount-paths.js';
import { checkDevices } from './config/devices.js';
import { checkRequiredCapabilities } from './config/required-capabilities.js';
import { checkEgress } from './config/egress.js';
import { checkNetwork, toSandboxNetwork } from './config/network.js';
import { toResources, type KernelLimits } from './config/resources.js';
import { checkSecurity, toContainerSecurity, toSandboxSecurity } from './config/security.js';
import { checkSysctls, toSysctls } from './config/sysctls.js';
import {
  isContainerId,
  toAnnotations,
  toContainerSelector,
  type Owner,
  type RecordedRequest,
} from './labels.js';
import { checkUlimits } from './ulimits.js';

/** Name of the log file of a container, in its log directory. */
export const LOG_FILE = '0.log';

/**
 * Validates a request without access to the machine.
 * @param capabilities - Capabilities of this node.
 * @throws kind `invalid` or `unimplemented`, naming the field.
 */
export function checkRequest(request: ContainerRequest, capabilities: readonly string[]): void {
  const { containerId, image, lease, workingDir, limits } = request;
  if (!isContainerId(containerId))
    throw new CloudlessError('invalid', 'containerId: must be 64 hex digits');
  if (image === undefined || image === '') {
    throw new CloudlessError(
      'invalid',
      'image: must be set for a container; to run a command without an image, use a node with the process runtime',
    );
  }
  if (lease !== undefined) throw createLeasesUnimplementedError();
  if (workingDir !== undefined && !workingDir.startsWith('/')) {
    throw new CloudlessError('invalid', 'workingDir: must be an absolute path');
  }
  if (limits.pids !== undefined && !(Number.isInteger(limits.pids) && limits.pids >= 1)) {
    throw new CloudlessError('invalid', 'limits.pids: must be 1 or more');
  }
  checkSecurity(request);
  checkNetwork(request);
  checkEgress(request);
  checkSysctls(request);
  checkDevices(request);
  checkUlimits(request);
  checkMountPaths(request);
  checkRequiredCapabilities(request, capabilities);
}

/**
 * Creates the error for a request with a lease: no container runtime ends a container by itself
 * when its agent no longer renews the lease.
 */
export function createLeasesUnimplementedError(): CloudlessError {
  return new CloudlessError(
    'unimplemented',
    'lease: this node lacks the capability disconnect.exclusive, because a container runtime cannot end a container by itself',
  );
}

/** Creates the error for a signal to a container whose processes this agent does not see. */
export function createSignalsUnimplementedError(): CloudlessError {
  return new CloudlessError(
    'unimplemented',
    `signal: this node lacks the capability ${SIGNAL_CAPABILITY}: the agent must run as root, in the pid namespace of the container runtime`,
  );
}

/**
 * Builds the configuration of the sandbox: network, host name, log directory.
 * @param logDirectory - Absolute path of the log directory of this container.
 */
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
    labels: toContainerSelector(owner, containerId),
    linux: { securityContext: toSandboxSecurity(request), sysctls: toSysctls(request) },
  });
}

/** Settings of a container that its request does not contain. */
export interface ContainerSettings extends Pick<RecordedRequest, 'filteredSandbox'> {
  /** Id of the image in the runtime. */
  readonly imageRef: string;
  readonly mounts: readonly ContainerMount[];
  /** Limit on processes and threads; undefined for no limit. */
  readonly pids: number | undefined;
  readonly kernel: KernelLimits;
}

/** Builds the configuration of the container. */
export function toContainerConfig(
  request: ContainerRequest,
  owner: Owner,
  settings: ContainerSettings,
): ContainerConfig {
  const { imageRef, mounts, pids, kernel } = settings;
  const { containerId, command, args, env, secretEnv, workingDir = '' } = request;
  return create(ContainerConfigSchema, {
    metadata: { name: 'main' },
    image: { image: imageRef },
    command: [...command],
    args: [...args],
    workingDir,
    envs: Object.entries({ ...env, ...secretEnv }).map(([key, value]) => ({
      key,
      value: new TextEncoder().encode(value),
    })),
    devices: [...(request.devices ?? [])],
    mounts: mounts.map(({ inMemory: _, mountPoint: __, ...mount }) => mount),
    labels: toContainerSelector(owner, containerId),
    annotations: toAnnotations(request, settings),
    logPath: LOG_FILE,
    linux: {
      resources: toResources(request, pids, kernel),
      securityContext: toContainerSecurity(request),
    },
  });
}
