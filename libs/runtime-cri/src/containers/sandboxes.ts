import { rm } from 'node:fs/promises';
import { errorKindOf, type ContainerId } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { ContainerState, type Container, type PodSandbox } from '../gen/runtime/v1/api_pb.js';
import { hostPortsOf } from './config/network.js';
import type { ForeignPorts } from './host-ports.js';
import { containerIdOf, fromAnnotations, isOwned, ownedAs, ownedBy, type Owner } from './labels.js';

/** Lists and removes the sandboxes of one owner, with everything in them. */
export class Sandboxes {
  constructor(
    private readonly client: CriClient,
    private readonly owner: Owner,
    private readonly logDirectoryOf: (containerId: ContainerId) => string,
  ) {}

  /** Lists all sandboxes of this owner. */
  all(): Promise<readonly PodSandbox[]> {
    return this.list(ownedBy(this.owner));
  }

  /**
   * Lists the ids of all containers of this owner in any state, including those of which only the
   * sandbox exists.
   */
  async containerIds(): Promise<readonly ContainerId[]> {
    const all = [...(await this.all()), ...(await this.listContainers(ownedBy(this.owner)))];
    return [...new Set(all.map(({ labels }) => containerIdOf(labels)))];
  }

  /**
   * Lists the containers of this owner that were never started, or whose state the runtime has
   * lost.
   */
  async unfinished(): Promise<readonly Container[]> {
    const unfinished = [ContainerState.CONTAINER_CREATED, ContainerState.CONTAINER_UNKNOWN];
    return (await this.listContainers(ownedBy(this.owner))).filter(({ state }) =>
      unfinished.includes(state),
    );
  }

  /** Lists the host ports of running containers of other agents in any cluster. Read-only. */
  async foreignPorts(): Promise<readonly ForeignPorts[]> {
    const { containers } = await this.client.quick('ListContainers', (calls, signal) =>
      calls.listContainers({}, { signal }),
    );
    return containers
      .filter(
        ({ labels, state }) =>
          state === ContainerState.CONTAINER_RUNNING && !isOwned(labels, this.owner),
      )
      .map(({ labels, annotations }) => {
        const { ports, hostNetwork = false } = fromAnnotations(annotations);
        return {
          containerId: containerIdOf(labels),
          ports: hostPortsOf({ ports, network: { hostNetwork } }),
        };
      });
  }

  /** Stops a container whose state the runtime has lost; it then counts as exited. */
  async endLost(id: string): Promise<void> {
    await this.client.slow('StopContainer', (calls, signal) =>
      calls.stopContainer({ containerId: id, timeout: 0n }, { signal }),
    );
  }

  /**
   * Removes the sandbox of a container with everything in it, and its logs. An unknown id is no
   * error.
   */
  async removeAllOf(containerId: ContainerId): Promise<void> {
    const sandboxes = (await this.list(ownedAs(this.owner, containerId))).filter(
      ({ labels }) => containerIdOf(labels) === containerId,
    );
    for (const { id } of sandboxes) await this.remove(id);
    // another program has removed the sandbox
    if (sandboxes.length === 0) await this.removeContainersOf(containerId);
    await rm(this.logDirectoryOf(containerId), { recursive: true, force: true });
  }

  /**
   * Ends the network of a sandbox whose container has exited, so that its host ports are free. The
   * container stays.
   */
  async endNetwork(podSandboxId: string): Promise<void> {
    await this.client.slow('StopPodSandbox', (calls, signal) =>
      calls.stopPodSandbox({ podSandboxId }, { signal }),
    );
  }

  private async list(labelSelector: Record<string, string>): Promise<readonly PodSandbox[]> {
    const { items } = await this.client.quick('ListPodSandbox', (calls, signal) =>
      calls.listPodSandbox({ filter: { labelSelector } }, { signal }),
    );
    return items.filter(({ labels }) => isOwned(labels, this.owner));
  }

  private async listContainers(
    labelSelector: Record<string, string>,
  ): Promise<readonly Container[]> {
    const { containers } = await this.client.quick('ListContainers', (calls, signal) =>
      calls.listContainers({ filter: { labelSelector } }, { signal }),
    );
    return containers.filter(({ labels }) => isOwned(labels, this.owner));
  }

  private async removeContainersOf(containerId: ContainerId): Promise<void> {
    for (const { id, labels } of await this.listContainers(ownedAs(this.owner, containerId))) {
      if (containerIdOf(labels) !== containerId) continue;
      await this.client.slow('RemoveContainer', (calls, signal) =>
        calls.removeContainer({ containerId: id }, { signal }),
      );
    }
  }

  /**
   * Stops the sandbox first, as the interface requires. The removal then removes its containers,
   * too.
   */
  private async remove(podSandboxId: string): Promise<void> {
    try {
      await this.endNetwork(podSandboxId);
      await this.client.slow('RemovePodSandbox', (calls, signal) =>
        calls.removePodSandbox({ podSandboxId }, { signal }),
      );
    } catch (reason) {
      if (errorKindOf(reason) !== 'notFound') throw reason;
    }
  }
}
