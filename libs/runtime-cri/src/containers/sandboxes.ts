import { rm } from 'node:fs/promises';
import { errorKindOf, type ContainerId } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { ContainerState, type Container, type PodSandbox } from '../gen/runtime/v1/api_pb.js';
import { listHostPorts } from './config/network.js';
import type { ForeignPorts } from './host-ports.js';
import {
  readContainerId,
  fromAnnotations,
  isOwned,
  toContainerSelector,
  toOwnerSelector,
  type Owner,
} from './labels.js';

/** Lists and removes the sandboxes of one owner, with everything in them. */
export class Sandboxes {
  constructor(
    private readonly client: CriClient,
    private readonly owner: Owner,
    private readonly getLogDirectory: (containerId: ContainerId) => string,
  ) {}

  /** Lists all sandboxes of this owner. */
  listAll(): Promise<readonly PodSandbox[]> {
    return this.list(toOwnerSelector(this.owner));
  }

  /**
   * Lists the ids of all containers of this owner in any state, including those of which only the
   * sandbox exists.
   */
  async listContainerIds(): Promise<readonly ContainerId[]> {
    const all = [
      ...(await this.listAll()),
      ...(await this.listContainers(toOwnerSelector(this.owner))),
    ];
    return [...new Set(all.map(({ labels }) => readContainerId(labels)))];
  }

  /**
   * Lists the containers of this owner that were never started, or whose state the runtime has
   * lost.
   */
  async listUnfinished(): Promise<readonly Container[]> {
    const unfinished = [ContainerState.CONTAINER_CREATED, ContainerState.CONTAINER_UNKNOWN];
    return (await this.listContainers(toOwnerSelector(this.owner))).filter(({ state }) =>
      unfinished.includes(state),
    );
  }

  /** Lists the host ports of running containers of other agents in any cluster. Read-only. */
  async listForeignPorts(): Promise<readonly ForeignPorts[]> {
    const { containers } = await this.client.callQuick('ListContainers', (calls, signal) =>
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
          containerId: readContainerId(labels),
          ports: listHostPorts({ ports, network: { hostNetwork } }),
        };
      });
  }

  /** Stops a container whose state the runtime has lost; it then counts as exited. */
  async stopLost(id: string): Promise<void> {
    await this.client.callSlow('StopContainer', (calls, signal) =>
      calls.stopContainer({ containerId: id, timeout: 0n }, { signal }),
    );
  }

  /**
   * Removes the sandbox of a container with everything in it, and its logs. An unknown id is no
   * error.
   */
  async removeAllOf(containerId: ContainerId): Promise<void> {
    const sandboxes = (await this.list(toContainerSelector(this.owner, containerId))).filter(
      ({ labels }) => readContainerId(labels) === containerId,
    );
    for (const { id } of sandboxes) await this.remove(id);
    // another program has removed the sandbox
    if (sandboxes.length === 0) await this.removeContainersOf(containerId);
    await rm(this.getLogDirectory(containerId), { recursive: true, force: true });
  }

  /**
   * Ends the network of a sandbox whose container has exited, so that its host ports are free. The
   * container stays.
   */
  async endNetwork(podSandboxId: string): Promise<void> {
    await this.client.callSlow('StopPodSandbox', (calls, signal) =>
      calls.stopPodSandbox({ podSandboxId }, { signal }),
    );
  }

  private async list(labelSelector: Record<string, string>): Promise<readonly PodSandbox[]> {
    const { items } = await this.client.callQuick('ListPodSandbox', (calls, signal) =>
      calls.listPodSandbox({ filter: { labelSelector } }, { signal }),
    );
    return items.filter(({ labels }) => isOwned(labels, this.owner));
  }

  private async listContainers(
    labelSelector: Record<string, string>,
  ): Promise<readonly Container[]> {
    const { containers } = await this.client.callQuick('ListContainers', (calls, signal) =>
      calls.listContainers({ filter: { labelSelector } }, { signal }),
    );
    return containers.filter(({ labels }) => isOwned(labels, this.owner));
  }

  private async removeContainersOf(containerId: ContainerId): Promise<void> {
    for (const { id, labels } of await this.listContainers(
      toContainerSelector(this.owner, containerId),
    )) {
      if (readContainerId(labels) !== containerId) continue;
      await this.client.callSlow('RemoveContainer', (calls, signal) =>
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
      await this.client.callSlow('RemovePodSandbox', (calls, signal) =>
        calls.removePodSandbox({ podSandboxId }, { signal }),
      );
    } catch (reason) {
      if (errorKindOf(reason) !== 'notFound') throw reason;
    }
  }
}
