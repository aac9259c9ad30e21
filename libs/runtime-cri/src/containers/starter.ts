import { stat } from 'node:fs/promises';
import { totalmem } from 'node:os';
import {
  CloudlessError,
  errorFields,
  errorKindOf,
  type Clock,
  type ContainerId,
  type Log,
} from '@cloudless/base';
import type { ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import { PortReservations } from '@cloudless/system';
import type { CriClient } from '../client/cri-client.js';
import type { PodSandboxConfig } from '../gen/runtime/v1/api_pb.js';
import { isUnified, PidsLimit } from '../system/pids-limit.js';
import { canLimitSwap } from '../system/swap-limits.js';
import type { GroupVolumes } from '../volumes/group-volumes.js';
import { checkMemoryMounts } from '../volumes/memory-mounts.js';
import type { PlannedMount } from '../volumes/mount-paths.js';
import { findDevices } from './config/devices.js';
import type { KernelLimits } from './config/resources.js';
import { asksForUser, checkImageUser } from './config/security.js';
import { HostsFiles } from './hosts-files.js';
import { claimHostPorts, type PortRange } from './host-ports.js';
import type { Images } from './images.js';
import type { Inventory } from './inventory.js';
import { groupOf, hasGroup, type Owner } from './labels.js';
import { checkRequest, toContainerConfig, toSandboxConfig } from './request-config.js';
import type { Sandboxes } from './sandboxes.js';
import { IdInUseError, isNameTaken, refusalOf, startFailure } from './start-failure.js';
import { pidOf } from './to-status.js';
import { confirmUlimits, limitSandbox } from './ulimits.js';

export interface StarterOptions {
  readonly client: CriClient;
  readonly inventory: Inventory;
  readonly sandboxes: Sandboxes;
  readonly images: Images;
  readonly volumes: GroupVolumes;
  readonly owner: Owner;
  readonly capabilities: () => readonly string[];
  /** Processes and threads of a container whose request sets no limit. */
  readonly maxPids: number;
  readonly processPorts?: PortRange | undefined;
  readonly logDirectoryOf: (containerId: ContainerId) => string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Prerequisites of a start that exist before its sandbox. */
interface Prepared {
  readonly imageRef: string;
  readonly mounts: readonly PlannedMount[];
  /** Releases the reserved host ports. Call it when the container runs or the start has failed. */
  readonly releasePorts: () => void;
}

/** Starts containers, one sandbox each. A failed start leaves no traces. */
export class Starter {
  private readonly starting = new Map<ContainerId, ContainerRequest>();
  private readonly underWay = new Set<Promise<ContainerStatus>>();
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
    this.hostsFiles = new HostsFiles(options.logDirectoryOf);
  }

  /** Whether this container is being started: the sweep must not remove it. */
  isStarting(containerId: ContainerId): boolean {
    return this.starting.has(containerId);
  }

  async start(request: ContainerRequest): Promise<ContainerStatus> {
    if (this.isClosed) throw new CloudlessError('unavailable', 'this runtime is shutting down');
    const started = this.startNow(request);
    this.underWay.add(started);
    try {
      return await started;
    } finally {
      this.underWay.delete(started);
    }
  }

  /** Refuses further starts. Resolves when all running starts have succeeded or failed. */
  async close(): Promise<void> {
    this.isClosed = true;
    await Promise.allSettled(this.underWay);
  }

  private async startNow(request: ContainerRequest): Promise<ContainerStatus> {
    const { capabilities, volumes } = this.options;
    checkRequest(request, capabilities());
    const { containerId } = request;
    if (this.starting.has(containerId)) throw new IdInUseError(containerId);
    this.starting.set(containerId, request);
    const letGo = volumes.hold(groupOf(request));
    try {
      if (await this.isHere(containerId)) throw new IdInUseError(containerId);
      const prepared = await this.prepare(request);
      try {
        return await this.make(request, prepared);
      } finally {
        prepared.releasePorts();
      }
    } catch (reason) {
      letGo();
      if (errorKindOf(reason) !== 'unavailable') await this.releaseVolumes(request);
      throw startFailure(reason, request);
    } finally {
      letGo();
      this.options.images.release(containerId);
      this.starting.delete(containerId);
    }
  }

  /**
   * Whether a container with this id exists. Only a known id is refreshed: ids are new, and the
   * runtime also refuses a second sandbox of one name.
   */
  private async isHere(containerId: ContainerId): Promise<boolean> {
    const { inventory } = this.options;
    if (inventory.find(containerId) === undefined) return false;
    await inventory.look();
    return inventory.find(containerId) !== undefined;
  }

  /** Does everything that can fail without a sandbox. */
  private async prepare(request: ContainerRequest): Promise<Prepared> {
    const { images, inventory, sandboxes, volumes, processPorts } = this.options;
    const { seccomp } = request.security ?? {};
    if (seccomp?.kind === 'localhost') await this.checkProfile(seccomp.reference);
    await findDevices(request);
    const imageRef = await images.resolve(request);
    if (asksForUser(request)) await this.checkUser(request, imageRef);
    const starting = [...this.starting.values()];
    // The first of two starts for one port gets it.
    const before = starting.slice(0, starting.indexOf(request));
    const foreign = (): ReturnType<Sandboxes['foreignPorts']> => sandboxes.foreignPorts();
    const mounts = await volumes.mountsFor(request);
    const others = {
      known: inventory.all(),
      starting: before,
      processPorts,
      foreign,
      reservations: this.reservations,
    };
    return { imageRef, mounts, releasePorts: await claimHostPorts(request, others, sandboxes) };
  }

  private async checkProfile(file: string): Promise<void> {
    const found = await stat(file).catch(() => undefined);
    if (found?.isFile() === true) return;
    throw new CloudlessError(
      'precondition',
      `security.seccomp: the profile ${file} does not exist on this node`,
    );
  }

  private async checkUser({ image = '' }: ContainerRequest, imageRef: string): Promise<void> {
    const answer = await this.options.client.quickImage('ImageStatus', (calls, signal) =>
      calls.imageStatus({ image: { image: imageRef } }, { signal }),
    );
    checkImageUser(image, answer.image ?? {});
  }

  private async make(request: ContainerRequest, prepared: Prepared): Promise<ContainerStatus> {
    const { owner, sandboxes, log, logDirectoryOf } = this.options;
    const { containerId } = request;
    const config = toSandboxConfig(request, owner, logDirectoryOf(containerId));
    try {
      const podSandboxId = await this.runSandbox(request, config);
      return await this.run(request, prepared, { podSandboxId, config });
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
      throw refusalOf(reason);
    }
  }

  /**
   * Creates the sandbox. A sandbox of this name that an earlier, interrupted start has left is
   * removed first.
   */
  private async runSandbox(
    { containerId, security }: ContainerRequest,
    config: PodSandboxConfig,
  ): Promise<string> {
    const { client, inventory, sandboxes } = this.options;
    const runtimeHandler = security?.runtimeClass ?? '';
    const run = async (): Promise<string> =>
      (
        await client.slow('RunPodSandbox', (calls, signal) =>
          calls.runPodSandbox({ config, runtimeHandler }, { signal }),
        )
      ).podSandboxId;
    try {
      return await run();
    } catch (reason) {
      if (!isNameTaken(reason)) throw reason;
      await inventory.look();
      if (inventory.find(containerId) !== undefined) throw new IdInUseError(containerId);
      await sandboxes.removeAllOf(containerId);
    }
    return run();
  }

  private async run(
    request: ContainerRequest,
    { imageRef, mounts }: Prepared,
    sandbox: { readonly podSandboxId: string; readonly config: PodSandboxConfig },
  ): Promise<ContainerStatus> {
    const { client, owner, inventory, clock } = this.options;
    const { podSandboxId, config: sandboxConfig } = sandbox;
    const pids = this.pidsOf(request);
    const { ulimits = [] } = request;
    if (ulimits.length > 0) await limitSandbox(await inventory.sandboxPidOf(podSandboxId), ulimits);
    const hosts = await this.hostsFiles.make(request);
    // last, because /etc may be a volume
    const all = hosts === undefined ? mounts : [...mounts, hosts];
    const config = toContainerConfig(request, owner, {
      imageRef,
      mounts: all,
      pids,
      kernel: this.kernel,
    });
    const [{ containerId: runtimeId }, ip] = await Promise.all([
      client.slow('CreateContainer', (calls, signal) =>
        calls.createContainer({ podSandboxId, config, sandboxConfig }, { signal }),
      ),
      this.addressOf(request, podSandboxId),
    ]);
    await this.startLimited(runtimeId, pids);
    const answer = await inventory.statusOf(runtimeId);
    const pid = pidOf(answer.info);
    if (pid !== undefined && pids !== undefined) await this.holdPids(pid, pids, request);
    if (pid !== undefined) checkMemoryMounts(pid, mounts);
    if (pid !== undefined) await confirmUlimits(pid, ulimits, clock);
    return inventory.learn({ runtimeId, sandboxId: podSandboxId, ip }, answer);
  }

  /**
   * Reads the address of the sandbox and writes it to the hosts file.
   * @returns Empty in the network of the machine.
   */
  private async addressOf(request: ContainerRequest, podSandboxId: string): Promise<string> {
    const ip =
      request.network?.hostNetwork === true ? '' : await this.options.inventory.ipOf(podSandboxId);
    await this.hostsFiles.fill(request, ip);
    return ip;
  }

  private async startLimited(containerId: string, pids: number | undefined): Promise<void> {
    const { client, inventory } = this.options;
    const undo =
      pids === undefined || this.kernel.unifiedPids
        ? async () => undefined
        : await this.pidsLimit.prepare((await inventory.statusOf(containerId)).info, pids);
    try {
      await client.slow('StartContainer', (calls, signal) =>
        calls.startContainer({ containerId }, { signal }),
      );
    } catch (reason) {
      await undo();
      throw reason;
    }
  }

  private async holdPids(pid: number, pids: number, { limits }: ContainerRequest): Promise<void> {
    if ((await this.pidsLimit.hold(pid, pids)) || limits.pids === undefined) return;
    throw new CloudlessError(
      'precondition',
      'limits.pids: the limit cannot be set, because the runtime has not created a cgroup for the container',
    );
  }

  private pidsOf({ limits }: ContainerRequest): number | undefined {
    const { capabilities, maxPids } = this.options;
    return limits.pids ?? (capabilities().includes('limits.pids') ? maxPids : undefined);
  }

  private async releaseVolumes(request: ContainerRequest): Promise<void> {
    if (hasGroup(request)) await this.options.volumes.release(groupOf(request));
  }
}
