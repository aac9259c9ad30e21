import { stat } from 'node:fs/promises';
import { totalmem } from 'node:os';
import {
  CloudlessError,
  definedFields,
  errorFields,
  errorKindOf,
  type Clock,
  type ContainerId,
  type Log,
} from '@cloudless/base';
import type { ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import { PortReservations } from '@cloudless/app-kit';
import type { CriClient } from '../client/cri-client.js';
import type { PodSandboxConfig } from '../gen/runtime/v1/api_pb.js';
import { createEgressUnimplementedError, type EgressFilter } from '../egress/egress-filter.js';
import type { ProcessIdentity } from '../system/host-processes.js';
import { isUnified, PidsLimit } from '../system/pids-limit.js';
import { canLimitSwap } from '../system/swap-limits.js';
import type { GroupVolumes } from '../volumes/group-volumes.js';
import { checkMemoryMounts } from '../volumes/memory-mounts.js';
import type { ContainerMount } from '../volumes/mount-paths.js';
import type { Images } from '../images/images.js';
import { requireDevices } from './config/devices.js';
import type { KernelLimits } from './config/resources.js';
import { checkImageUser, needsImageUser } from './config/security.js';
import { HostsFiles } from './hosts-files.js';
import { claimHostPorts, type PortRange } from './host-ports.js';
import type { ContainerInventory } from './inventory.js';
import { needsVolumeGroup, toVolumeGroup, type Owner } from './labels.js';
import { checkRequest, toContainerConfig, toSandboxConfig } from './request-config.js';
import { readSandboxProcess } from './sandbox-process.js';
import type { Sandboxes } from './sandboxes.js';
import { IdInUseError, isNameTaken, toRemovedStartError, toStartError } from './start-failure.js';
import { parsePid } from './to-status.js';
import { confirmUlimits, setSandboxUlimits } from './ulimits.js';

/** Arguments of {@link Starter}. */
export interface StarterOptions {
  readonly client: CriClient;
  readonly inventory: ContainerInventory;
  readonly sandboxes: Sandboxes;
  readonly images: Images;
  readonly volumes: GroupVolumes;
  readonly egressFilter: EgressFilter;
  readonly owner: Owner;
  /** Returns the current capabilities of this node. */
  readonly capabilities: () => readonly string[];
  /** Limit on the processes and threads of a container whose request sets no limit. */
  readonly maxPids: number;
  /** Host ports of the process runtime, which no container gets. */
  readonly processPorts?: PortRange | undefined;
  /** Returns the absolute path of the log directory of a container. */
  readonly getLogDirectory: (containerId: ContainerId) => string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Everything that a start obtains before it creates a sandbox. */
interface PreparedStart {
  /** Id of the image in the container runtime. */
  readonly imageRef: string;
  readonly mounts: readonly ContainerMount[];
  /** Releases the reserved host ports. Call it when the container runs or the start has failed. */
  readonly releasePorts: () => void;
}

/**
 * Starts containers, each in a sandbox of its own. A failed start removes its sandbox, container,
 * log and empty directories. When the removal fails, the sweep removes them later.
 */
export class Starter {
  /** Requests whose start is running, in the order of the calls. */
  private readonly startingRequests = new Map<ContainerId, ContainerRequest>();
  private readonly runningStarts = new Set<Promise<ContainerStatus>>();
  private isClosed = false;
  private readonly kernel: KernelLimits = {
    swap: canLimitSwap(),
    unifiedPids: isUnified(),
    memoryBytes: totalmem(),
  };
  private readonly pidsLimit = new PidsLimit();
  private readonly reservations = new PortReservations();
  private readonly hostsFiles: HostsFiles;

  constructor(private readonly options: StarterOptions) {
    this.hostsFiles = new HostsFiles(options.getLogDirectory);
  }

  /** Returns true while a container is being started: the sweep must not remove its sandbox. */
  isStarting(containerId: ContainerId): boolean {
    return this.startingRequests.has(containerId);
  }

  /**
   * Starts a container, see `ContainerRuntime.start`.
   * @returns The status of the running container.
   */
  async start(request: ContainerRequest): Promise<ContainerStatus> {
    if (this.isClosed) throw new CloudlessError('unavailable', 'this runtime is shutting down');
    const running = this.startNow(request);
    this.runningStarts.add(running);
    try {
      return await running;
    } finally {
      this.runningStarts.delete(running);
    }
  }

  /** Refuses further starts. Resolves when all running starts have succeeded or failed. */
  async close(): Promise<void> {
    this.isClosed = true;
    await Promise.allSettled(this.runningStarts);
  }

  private async startNow(request: ContainerRequest): Promise<ContainerStatus> {
    const { capabilities, volumes } = this.options;
    checkRequest(request, capabilities());
    const { containerId } = request;
    if (this.startingRequests.has(containerId)) throw new IdInUseError(containerId);
    this.startingRequests.set(containerId, request);
    const releaseHold = volumes.hold(toVolumeGroup(request));
    try {
      if (await this.isPresent(containerId)) throw new IdInUseError(containerId);
      const prepared = await this.prepare(request);
      try {
        return await this.createInSandbox(request, prepared);
      } finally {
        prepared.releasePorts();
      }
    } catch (reason) {
      releaseHold();
      if (errorKindOf(reason) !== 'unavailable') await this.releaseVolumes(request);
      throw toStartError(reason, request);
    } finally {
      releaseHold();
      this.options.images.release(containerId);
      this.startingRequests.delete(containerId);
    }
  }

  /**
   * Returns true when a container with this id exists. Refreshes the inventory only for an id that
   * the inventory contains: a new id is nearly always unused, and the container runtime also
   * refuses a second sandbox with the same name.
   */
  private async isPresent(containerId: ContainerId): Promise<boolean> {
    const { inventory } = this.options;
    if (inventory.find(containerId) === undefined) return false;
    await inventory.refreshAll();
    return inventory.find(containerId) !== undefined;
  }

  /** Checks the request against this machine and obtains image, mounts and host ports. */
  private async prepare(request: ContainerRequest): Promise<PreparedStart> {
    const { images, inventory, sandboxes, volumes, processPorts } = this.options;
    const { seccomp } = request.security ?? {};
    if (seccomp?.kind === 'localhost') await this.checkProfile(seccomp.reference);
    await requireDevices(request);
    const imageRef = await images.resolve(request);
    if (needsImageUser(request)) await this.checkUser(request, imageRef);
    const starting = [...this.startingRequests.values()];
    // Of two concurrent starts with the same host port, the earlier start gets the port.
    const earlierStarts = starting.slice(0, starting.indexOf(request));
    const foreign = (): ReturnType<Sandboxes['listForeignPorts']> => sandboxes.listForeignPorts();
    const mounts = await volumes.createMounts(request);
    const others = {
      known: inventory.list(),
      starting: earlierStarts,
      processPorts,
      foreign,
      reservations: this.reservations,
    };
    return { imageRef, mounts, releasePorts: await claimHostPorts(request, others, sandboxes) };
  }

  private async checkProfile(file: string): Promise<void> {
    const stats = await stat(file).catch(() => undefined);
    if (stats?.isFile() === true) return;
    throw new CloudlessError(
      'precondition',
      `security.seccomp: the profile ${file} does not exist on this node`,
    );
  }

  private async checkUser({ image = '' }: ContainerRequest, imageRef: string): Promise<void> {
    const answer = await this.options.client.callQuickImage('ImageStatus', (calls, signal) =>
      calls.imageStatus({ image: { image: imageRef } }, { signal }),
    );
    checkImageUser(image, answer.image ?? {});
  }

  private async createInSandbox(
    request: ContainerRequest,
    prepared: PreparedStart,
  ): Promise<ContainerStatus> {
    const { owner, sandboxes, log, getLogDirectory } = this.options;
    const { containerId } = request;
    const config = toSandboxConfig(request, owner, getLogDirectory(containerId));
    try {
      const podSandboxId = await this.runSandbox(request, config);
      return await this.createAndStart(request, prepared, { podSandboxId, config });
    } catch (reason) {
      if (reason instanceof IdInUseError) throw reason;
      try {
        await sandboxes.removeAllOf(containerId);
      } catch (failure) {
        log.warn('failed start left a sandbox for the sweep', {
          containerId,
          ...errorFields(failure),
        });
        throw reason;
      }
      throw toRemovedStartError(reason);
    }
  }

  /**
   * Creates the sandbox. When an interrupted start of the same container has left a sandbox with
   * this name, that sandbox is removed first.
   * @returns The id of the sandbox in the container runtime.
   */
  private async runSandbox(
    { containerId, security }: ContainerRequest,
    config: PodSandboxConfig,
  ): Promise<string> {
    const { client, inventory, sandboxes } = this.options;
    const runtimeHandler = security?.runtimeClass ?? '';
    const run = async (): Promise<string> =>
      (
        await client.callSlow('RunPodSandbox', (calls, signal) =>
          calls.runPodSandbox({ config, runtimeHandler }, { signal }),
        )
      ).podSandboxId;
    try {
      return await run();
    } catch (reason) {
      if (!isNameTaken(reason)) throw reason;
      await inventory.refreshAll();
      if (inventory.find(containerId) !== undefined) throw new IdInUseError(containerId);
      await sandboxes.removeAllOf(containerId);
    }
    return run();
  }

  private async createAndStart(
    request: ContainerRequest,
    { imageRef, mounts }: PreparedStart,
    sandbox: { readonly podSandboxId: string; readonly config: PodSandboxConfig },
  ): Promise<ContainerStatus> {
    const { client, owner, inventory, clock } = this.options;
    const { podSandboxId, config: sandboxConfig } = sandbox;
    const pids = this.resolvePidsLimit(request);
    const { ulimits = [] } = request;
    const filteredSandbox = await this.limitSandbox(request, podSandboxId);
    const hosts = await this.hostsFiles.create(request);
    // Mount the hosts file last: a volume at /etc would cover an earlier mount.
    const allMounts = hosts === undefined ? mounts : [...mounts, hosts];
    const config = toContainerConfig(request, owner, {
      imageRef,
      mounts: allMounts,
      pids,
      kernel: this.kernel,
      ...definedFields({ filteredSandbox }),
    });
    const [{ containerId: runtimeId }, ip] = await Promise.all([
      client.callSlow('CreateContainer', (calls, signal) =>
        calls.createContainer({ podSandboxId, config, sandboxConfig }, { signal }),
      ),
      this.readAddress(request, podSandboxId),
    ]);
    await this.startWithLimits(runtimeId, pids);
    const answer = await inventory.readStatus(runtimeId);
    const pid = parsePid(answer.info);
    if (pid !== undefined && pids !== undefined) await this.enforcePidsLimit(pid, pids, request);
    if (pid !== undefined) checkMemoryMounts(pid, mounts);
    if (pid !== undefined) await confirmUlimits(pid, ulimits, clock);
    return inventory.addStarted({ runtimeId, sandboxId: podSandboxId, ip }, answer);
  }

  /**
   * Sets the limits of the request that apply to a sandbox. Its container is created afterwards, so
   * that no instruction of the container runs without the limits.
   * @returns The process of the sandbox when a packet filter was set in its network.
   */
  private async limitSandbox(
    { ulimits = [], network }: ContainerRequest,
    podSandboxId: string,
  ): Promise<ProcessIdentity | undefined> {
    const egress = network?.egress;
    if (ulimits.length === 0 && egress === undefined) return undefined;
    const pid = await this.options.inventory.readSandboxPid(podSandboxId);
    if (ulimits.length > 0) await setSandboxUlimits(pid, ulimits);
    if (egress === undefined) return undefined;
    const process = readSandboxProcess(pid);
    if (process === undefined) throw createEgressUnimplementedError();
    const sandbox = { pid: process.pid, startToken: process.startToken };
    await this.options.egressFilter.apply(sandbox, egress);
    return sandbox;
  }

  /**
   * Reads the IP address of the sandbox and writes the hosts file with this address.
   * @returns The address; empty in the network of the machine.
   */
  private async readAddress(request: ContainerRequest, podSandboxId: string): Promise<string> {
    const ip =
      request.network?.hostNetwork === true
        ? ''
        : await this.options.inventory.readSandboxIp(podSandboxId);
    await this.hostsFiles.fill(request, ip);
    return ip;
  }

  /** Starts a created container whose cgroup has the limit of processes from the beginning. */
  private async startWithLimits(containerId: string, pids: number | undefined): Promise<void> {
    const { client, inventory } = this.options;
    const undo =
      pids === undefined || this.kernel.unifiedPids
        ? async () => undefined
        : await this.pidsLimit.prepare((await inventory.readStatus(containerId)).info, pids);
    try {
      await client.callSlow('StartContainer', (calls, signal) =>
        calls.startContainer({ containerId }, { signal }),
      );
    } catch (reason) {
      await undo();
      throw reason;
    }
  }

  /** Refuses a container without a cgroup of its own only when its request sets a limit. */
  private async enforcePidsLimit(
    pid: number,
    pids: number,
    { limits }: ContainerRequest,
  ): Promise<void> {
    if ((await this.pidsLimit.enforce(pid, pids)) || limits.pids === undefined) return;
    throw new CloudlessError(
      'precondition',
      'limits.pids: the limit cannot be set, because the runtime has not created a cgroup for the container',
    );
  }

  /** Returns the limit of processes and threads; undefined when this node cannot limit them. */
  private resolvePidsLimit({ limits }: ContainerRequest): number | undefined {
    const { capabilities, maxPids } = this.options;
    return limits.pids ?? (capabilities().includes('limits.pids') ? maxPids : undefined);
  }

  private async releaseVolumes(request: ContainerRequest): Promise<void> {
    if (needsVolumeGroup(request)) await this.options.volumes.release(toVolumeGroup(request));
  }
}
