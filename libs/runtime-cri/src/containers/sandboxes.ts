import { rm } from 'node:fs/promises';
import { errorKindOf, type ContainerId } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { ContainerState, type Container, type PodSandbox } from '../gen/runtime/v1/api_pb.js';
import { listHostPorts, type ContainerHostPort } from './config/network.js';
import {
  readContainerId,
  fromAnnotations,
  isOwned,
  toContainerSelector,
  toOwnerSelector,
  type Owner,
} from './labels.js';

/** Host ports of a running container of another owner on this machine. */
export interface ForeignPorts {
  /** Cloudless id of the container; empty for a container of another program. */
  readonly containerId: string;
  readonly ports: readonly ContainerHostPort[];
}

/** Lists and removes the sandboxes of one owner, with the containers in them and their logs. */
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
   * Lists the ids of all containers of this owner, in any state. Includes the id of a sandbox
   * without a container, and of a container without a sandbox.
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

  /** Lists the host ports of running containers of other agents on this machine, of any cluster. */
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

  /**
   * Stops a container whose state the runtime has lost. The runtime then reports the container as
   * exited.
   * @param id - Id of the container in the runtime.
   */
  async stopLost(id: string): Promise<void> {
    await this.client.callSlow('StopContainer', (calls, signal) =>
      calls.stopContainer({ containerId: id, timeout: 0n }, { signal }),
    );
  }

  /**
   * Removes all sandboxes of a container id with their containers, and the log directory. Running
   * containers are killed. An unknown id is not an error.
   */
  async removeAllOf(containerId: ContainerId): Promise<void> {
    const sandboxes = (await this.list(toContainerSelector(this.owner, containerId))).filter(
      ({ labels }) => readContainerId(labels) === containerId,
    );
    for (const { id } of sandboxes) await this.remove(id);
    // A container stays in the runtime when another program has removed its sandbox.
    if (sandboxes.length === 0) await this.removeContainersOf(containerId);
    await rm(this.getLogDirectory(containerId), { recursive: true, force: true });
  }

  /**
   * Stops a sandbox whose container has exited: its network ends and its host ports become free.
   * The exited container and its logs stay.
   * @param podSandboxId - Id of the sandbox in the runtime.
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
   * Stops and removes a sandbox. The Container Runtime Interface requires the stop before the
   * removal. The removal also removes the containers of the sandbox.
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
