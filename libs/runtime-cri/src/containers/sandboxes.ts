import { rm } from 'node:fs/promises';
import { errorKindOf, type ContainerId } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import type { PodSandbox } from '../gen/runtime/v1/api_pb.js';
import { containerIdOf, isOwned, ownedAs, ownedBy, type Owner } from './labels.js';

/** Our sandboxes, and the end of them with all that is in them. */
export class Sandboxes {
  constructor(
    private readonly client: CriClient,
    private readonly owner: Owner,
    private readonly logDirectoryOf: (containerId: ContainerId) => string,
  ) {}

  /** Every sandbox of ours. */
  all(): Promise<readonly PodSandbox[]> {
    return this.list(ownedBy(this.owner));
  }

  /** Removes the sandbox of a container with everything in it, and its logs. Unknown is no error. */
  async removeAllOf(containerId: ContainerId): Promise<void> {
    const sandboxes = await this.list(ownedAs(this.owner, containerId));
    for (const { id, labels } of sandboxes) if (containerIdOf(labels) === containerId) await this.remove(id);
    await rm(this.logDirectoryOf(containerId), { recursive: true, force: true });
  }

  private async list(labelSelector: Record<string, string>): Promise<readonly PodSandbox[]> {
    const { items } = await this.client.quick('ListPodSandbox', (calls, signal) =>
      calls.listPodSandbox({ filter: { labelSelector } }, { signal }),
    );
    return items.filter(({ labels }) => isOwned(labels, this.owner));
  }

  /** Stops the network first, as the interface wants it; removal then takes the containers along. */
  private async remove(podSandboxId: string): Promise<void> {
    try {
      await this.client.slow('StopPodSandbox', (calls, signal) => calls.stopPodSandbox({ podSandboxId }, { signal }));
      await this.client.slow('RemovePodSandbox', (calls, signal) => calls.removePodSandbox({ podSandboxId }, { signal }));
    } catch (reason) {
      if (errorKindOf(reason) !== 'notFound') throw reason;
    }
  }
}
