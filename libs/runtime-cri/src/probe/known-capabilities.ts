import { errorFields, errorKindOf, type Log } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { readMachineFeatures } from '../system/machine-features.js';
import { toCapabilities, type Permissions } from './capabilities.js';

/**
 * The capabilities of one runtime, kept up to date: one that was restarted may have another
 * configuration.
 */
export class KnownCapabilities {
  private known: readonly string[] = [];

  constructor(
    private readonly client: CriClient,
    private readonly permissions: Permissions,
    private readonly log: Log,
  ) {}

  /** As of the newest answer. */
  names(): readonly string[] {
    return this.known;
  }

  /** Asks the runtime. @throws kind `unavailable` when it does not answer. */
  async load(): Promise<void> {
    const status = await this.client.quick('Status', (calls, signal) =>
      calls.status({ verbose: true }, { signal }),
    );
    const before = this.known;
    this.known = toCapabilities(status, readMachineFeatures(), this.permissions);
    const added = this.known.filter((name) => !before.includes(name));
    const removed = before.filter((name) => !this.known.includes(name));
    if (before.length === 0 || added.length + removed.length === 0) return;
    this.log.info('capabilities of the container runtime changed', { added, removed });
  }

  /** Asks the runtime; when it does not answer, what was known stays. */
  async refresh(): Promise<void> {
    try {
      await this.load();
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable')
        this.log.warn('capabilities not read', errorFields(reason));
    }
  }
}
