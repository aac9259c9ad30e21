import {
  CloudlessError,
  errorFields,
  errorKindOf,
  errorMessageOf,
  type ContainerId,
  type ErrorKind,
  type Log,
} from '@cloudless/base';
import type { ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';
import type { PodSandboxConfig } from '../gen/runtime/v1/api_pb.js';
import { canLimitSwap } from '../system/swap-limits.js';
import type { Images } from './images.js';
import type { Inventory } from './inventory.js';
import type { Owner } from './labels.js';
import { checkRequest, toContainerConfig, toSandboxConfig } from './request-config.js';
import type { Sandboxes } from './sandboxes.js';

/** Needs of a {@link Starter}. */
export interface StarterOptions {
  readonly client: CriClient;
  readonly inventory: Inventory;
  readonly sandboxes: Sandboxes;
  readonly images: Images;
  readonly owner: Owner;
  readonly logDirectoryOf: (containerId: ContainerId) => string;
  readonly log: Log;
}

/** Starts containers, one sandbox each; what fails leaves no trace. */
export class Starter {
  private readonly starting = new Set<ContainerId>();

  constructor(private readonly options: StarterOptions) {}

  /** Whether this container is being made: nobody is to sweep it away. */
  isStarting(containerId: ContainerId): boolean {
    return this.starting.has(containerId);
  }

  async start(request: ContainerRequest): Promise<ContainerStatus> {
    checkRequest(request);
    const { containerId } = request;
    if (this.starting.has(containerId)) throw inUse(containerId);
    this.starting.add(containerId);
    try {
      const { inventory, images, sandboxes } = this.options;
      await inventory.look();
      if (inventory.find(containerId) !== undefined) throw inUse(containerId);
      const [image] = await Promise.all([
        images.ensure(request.image ?? ''),
        sandboxes.removeAllOf(containerId), // of an earlier try that nobody saw the end of
      ]);
      return await this.make(request, image);
    } finally {
      this.starting.delete(containerId);
    }
  }

  private async make(request: ContainerRequest, image: string): Promise<ContainerStatus> {
    const { client, owner, sandboxes, log, logDirectoryOf } = this.options;
    const { containerId } = request;
    const sandboxConfig = toSandboxConfig(request, owner, logDirectoryOf(containerId));
    try {
      const { podSandboxId } = await client.slow('RunPodSandbox', (calls, signal) =>
        calls.runPodSandbox({ config: sandboxConfig }, { signal }),
      );
      return await this.run({ ...request, image }, podSandboxId, sandboxConfig);
    } catch (reason) {
      await sandboxes.removeAllOf(containerId).catch((failure: unknown) => {
        log.warn('failed start left a sandbox for the sweep', { containerId, ...errorFields(failure) });
      });
      throw startFailure(reason);
    }
  }

  private async run(request: ContainerRequest, podSandboxId: string, sandboxConfig: PodSandboxConfig): Promise<ContainerStatus> {
    const { client, owner, inventory } = this.options;
    const config = toContainerConfig(request, owner, canLimitSwap());
    const { containerId } = await client.slow('CreateContainer', (calls, signal) =>
      calls.createContainer({ podSandboxId, config, sandboxConfig }, { signal }),
    );
    await client.slow('StartContainer', (calls, signal) => calls.startContainer({ containerId }, { signal }));
    return (await inventory.lookFor(request.containerId)).status;
  }
}

function inUse(containerId: ContainerId): CloudlessError {
  return new CloudlessError('exists', `containerId: ${containerId} is in use`);
}

/** What a runtime's text says that its code does not. */
const MEANINGS: readonly { readonly kind: ErrorKind; readonly text: RegExp }[] = [
  { kind: 'exhausted', text: /no space left on device|cannot allocate memory|too many open files|no IP addresses available/i },
  {
    kind: 'invalid',
    text: /executable file not found|no command specified|exec format error|exec: .*(?:no such file or directory|permission denied|is a directory|not a directory)/i,
  },
];

/** A failed start as the port has it. */
export function startFailure(reason: unknown): unknown {
  if (errorKindOf(reason) === 'unavailable') return reason;
  const message = errorMessageOf(reason);
  const meaning = MEANINGS.find(({ text }) => text.test(message));
  return meaning === undefined ? reason : new CloudlessError(meaning.kind, message, { cause: reason });
}
