import { join } from 'node:path';
import { definedFields, type Log } from '@cloudless/base';
import { combineRuntimes, type ContainerRuntime, type LazyRuntime } from '@cloudless/runtime';
import { openCriRuntime, type CriRuntime, type CriRuntimeOptions } from '@cloudless/runtime-cri';
import {
  createSilentSupervisorError,
  openProcessRuntime,
  SILENT_AFTER_MS,
  type ProcessRuntime,
} from '@cloudless/runtime-process';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import type { AgentConfig } from '../agent-config.js';
import {
  createContainersMissingError,
  detectContainerRuntime,
  type DetectionResult,
} from './container-detection.js';
import { CONTAINERS_FOLDER, VOLUMES_FOLDER, type ContainerRecord } from './container-record.js';
import { ContainerRecordKeeper } from './container-record-keeper.js';
import { DetectedContainers, type AwaitedRuntime } from './detected-containers.js';

/** Folder in the data directory for the process runtime. */
export const RUNTIME_FOLDER = 'runtime';

/** Runtimes of an agent. */
export interface AgentRuntimes {
  readonly runtime: ContainerRuntime;
  /** Names of the runtimes: always `process`, and `cri` when the node has a container runtime. */
  readonly names: readonly string[];
  /**
   * Container runtime in use, such as `containerd 1.6.20 at /run/containerd/containerd.sock`;
   * undefined when there is none.
   */
  readonly containerRuntime: string | undefined;
  /** Reason why there is no container runtime; undefined when there is one. */
  readonly noContainersReason: string | undefined;
  /**
   * Sets the cluster that new containers belong to. Call it before the first container is started.
   * Does not wait for the container runtime.
   */
  setCluster(clusterId: string): Promise<void>;
  /**
   * Closes the runtimes.
   * @param stopContainers - True stops and removes all processes and containers; false keeps them
   *   running.
   */
  close(stopContainers: boolean): Promise<void>;
}

export interface RuntimeDeps {
  readonly log: Log;
  /** Command that starts the supervisor of the process runtime. */
  readonly supervisorCommand: readonly string[];
}

type RuntimeConfig = Pick<
  AgentConfig,
  | 'name'
  | 'dataDir'
  | 'portRange'
  | 'runtime'
  | 'criSocket'
  | 'denyProcesses'
  | 'allowPrivileged'
  | 'allowHostPath'
  | 'allowSysctl'
  | 'allowDevice'
  | 'maxPids'
>;

/**
 * Opens the process runtime, and the container runtime that the configuration allows.
 * @throws kind `precondition` when the configuration requires containers and no container runtime
 *   can be used. {@link StoppedError} when the signal is aborted before the process runtime is open.
 */
export async function openRuntimes(
  config: RuntimeConfig,
  deps: RuntimeDeps,
  signal?: AbortSignal,
): Promise<AgentRuntimes> {
  const log = deps.log.child({ component: 'runtime' });
  const recordKeeper = new ContainerRecordKeeper({
    dataDir: config.dataDir,
    node: config.name,
    log,
  });
  const detected = await detect(config, recordKeeper.current, log);
  // The coordinator stops the containers of a node that reports no runtime.cri, so a later agent has
  // no containers for which it would report capabilities before their runtime answers.
  if (config.runtime === 'process') recordKeeper.forgetCapabilities();
  const processes = await openProcesses(config, deps, signal);
  if (config.runtime === 'process' && detected.kind === 'none') {
    return {
      runtime: processes,
      names: [processes.name],
      containerRuntime: undefined,
      noContainersReason: detected.reason,
      setCluster: async () => undefined,
      close: (stopContainers) => closeProcesses(processes, stopContainers),
    };
  }
  const containers = createContainers(config, detected, recordKeeper, deps);
  const combined = combineRuntimes({
    processes,
    containers: containers.runtime,
    clock: systemClock,
    random: systemRandom,
    log,
  });
  return {
    runtime: combined,
    get names() {
      const { description, runtime } = containers;
      return description === undefined ? [processes.name] : [processes.name, runtime.name];
    },
    get containerRuntime() {
      return containers.description;
    },
    get noContainersReason() {
      return containers.missingReason;
    },
    setCluster: async (clusterId) => containers.setCluster(clusterId),
    close: async (stopContainers) => {
      containers.close();
      combined.detach();
      try {
        if (await closeContainers(containers.runtime, stopContainers)) recordKeeper.remove();
      } finally {
        await closeProcesses(processes, stopContainers);
      }
    },
  };
}

/**
 * Detects the container runtime. A container runtime that this agent has used before is used again,
 * because it may have containers of this agent. While such a runtime does not answer, the result is
 * `awaited`: its containers are managed as soon as the runtime answers.
 * @param record - Container runtime that was used before; undefined when there is none.
 */
async function detect(
  { runtime, criSocket, ...config }: RuntimeConfig,
  record: ContainerRecord | undefined,
  log: Log,
): Promise<DetectionResult | AwaitedRuntime> {
  const usedSocketPath = record?.socketPath;
  if (runtime === 'process') {
    if (record !== undefined)
      log.warn('containers of this node are not managed: runtime is process', {
        socketPath: usedSocketPath,
      });
    return { kind: 'none', reason: 'runtime is process' };
  }
  const socketPath = criSocket ?? usedSocketPath;
  if (usedSocketPath !== undefined && socketPath !== usedSocketPath) {
    log.warn('containers of this node at another socket are not managed', {
      socketPath: usedSocketPath,
      now: socketPath,
    });
  }
  const detected = await detectContainerRuntime({
    ...toPermissions(config),
    ...definedFields({ socketPath }),
    shared: runtime === 'cri' || usedSocketPath !== undefined,
    clock: systemClock,
  });
  if (detected.kind === 'found') return detected;
  if (socketPath !== undefined && socketPath === usedSocketPath) {
    log.warn(
      'container runtime does not answer: containers of this node are managed once it does',
      {
        ...{ socketPath, reason: detected.reason },
        remedy: 'start it, or run the agent without its containers with --runtime process',
      },
    );
    return { kind: 'awaited', socketPath, capabilities: record?.capabilities ?? [] };
  }
  if (runtime === 'cri') throw createContainersMissingError(detected.reason);
  return detected;
}

function toPermissions({
  allowPrivileged,
  allowHostPath: allowedHostPaths,
  allowSysctl: allowedSysctls,
  allowDevice: allowedDevices,
}: Pick<
  RuntimeConfig,
  'allowPrivileged' | 'allowHostPath' | 'allowSysctl' | 'allowDevice'
>): Permissions {
  return { allowPrivileged, allowedHostPaths, allowedSysctls, allowedDevices };
}

/** Permissions that the operator grants to containers. */
type Permissions = Required<
  Pick<
    CriRuntimeOptions,
    'allowPrivileged' | 'allowedHostPaths' | 'allowedSysctls' | 'allowedDevices'
  >
>;

function createContainers(
  config: RuntimeConfig,
  firstResult: DetectionResult | AwaitedRuntime,
  recordKeeper: ContainerRecordKeeper,
  deps: RuntimeDeps,
): DetectedContainers<CriRuntime> {
  const { name: node, dataDir, maxPids, portRange: processPorts } = config;
  const options = { maxPids, processPorts, ...toPermissions(config) };
  const log = deps.log.child({ component: 'runtime' });
  return new DetectedContainers({
    firstResult,
    detect: () =>
      detectContainerRuntime({
        ...toPermissions(config),
        ...definedFields({ socketPath: config.criSocket }),
        shared: config.runtime === 'cri',
        clock: systemClock,
      }),
    open: (socketPath, cluster) =>
      openContainers(
        { socketPath, owner: { cluster, node } },
        dataDir,
        deps.log.child({ component: 'containers' }),
        {
          ...options,
          onCapabilities: (capabilities) => recordKeeper.recordCapabilities(capabilities),
        },
      ),
    onUse: (socketPath, cluster) => recordKeeper.use(socketPath, cluster),
    clock: systemClock,
    log,
  });
}

/** Opens the container runtime that the record of a data directory names. */
export function openContainers(
  { socketPath, owner }: ContainerRecord,
  dataDir: string,
  log: Log,
  options: Pick<
    CriRuntimeOptions,
    'maxPids' | 'processPorts' | 'onCapabilities' | keyof Permissions
  > = {},
): Promise<CriRuntime> {
  return openCriRuntime({
    socketPath,
    owner,
    logDirectory: join(dataDir, CONTAINERS_FOLDER, 'logs'),
    volumeDirectory: join(dataDir, VOLUMES_FOLDER),
    guardedPaths: [dataDir],
    ...options,
    clock: systemClock,
    log,
  });
}

function openProcesses(
  config: Pick<RuntimeConfig, 'dataDir' | 'portRange' | 'denyProcesses'>,
  deps: RuntimeDeps,
  signal: AbortSignal | undefined,
): Promise<ProcessRuntime> {
  return openProcessRuntime({
    signal,
    // The agent reports the condition PROCESS_RUNTIME_UNAVAILABLE and manages its containers.
    acceptSilentSupervisor: true,
    directory: join(config.dataDir, RUNTIME_FOLDER),
    portRange: config.portRange,
    denyStarts: config.denyProcesses,
    clock: systemClock,
    random: systemRandom,
    log: deps.log.child({ component: 'runtime' }),
    supervisorCommand: deps.supervisorCommand,
  });
}

/**
 * Closes the process runtime. Stops all processes and shuts the supervisor down when
 * `stopContainers` is true. Also shuts the supervisor down when there are no processes. Otherwise
 * only closes the connection to the supervisor.
 * @throws kind `unavailable`, with the connection closed, when the supervisor does not answer. The
 *   supervisor and its processes run on.
 */
async function closeProcesses(runtime: ProcessRuntime, stopContainers: boolean): Promise<void> {
  try {
    requireAnswers(runtime); // a silent supervisor would not answer the shutdown either
    if (stopContainers || (await runtime.list()).length === 0) await runtime.shutdown();
  } finally {
    await runtime.close();
  }
}

/** @throws kind `unavailable` when the supervisor has not answered for {@link SILENT_AFTER_MS}. */
function requireAnswers(runtime: ProcessRuntime): void {
  const { processesSilentMs = 0, supervisorPid } = runtime.health?.() ?? {};
  if (processesSilentMs >= SILENT_AFTER_MS) throw createSilentSupervisorError(supervisorPid);
}

/**
 * Closes the container runtime. Stops and removes all containers before when `stopContainers` is
 * true and the runtime has been opened.
 * @returns True when the container runtime has shown that no container is left; false when the
 *   runtime was not asked, because the cluster is not known yet.
 */
async function closeContainers(
  runtime: LazyRuntime<CriRuntime>,
  stopContainers: boolean,
): Promise<boolean> {
  try {
    if (!stopContainers || runtime.opened === undefined) {
      const { length } = await runtime.list();
      return runtime.opened !== undefined && length === 0; // without a cluster, no runtime is asked
    }
    await runtime.opened.shutdown();
    return true;
  } finally {
    await runtime.close();
  }
}
