import { errorFields, errorKindOf, type Log } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { readMachineFeatures } from '../system/machine-features.js';
import { toCapabilities, type Permissions } from './capabilities.js';

/**
 * Cache of the capabilities of one runtime. It is refreshed regularly, because a restarted runtime
 * may have another configuration.
 */
export class CapabilityCache {
  private known: readonly string[] = [];

  constructor(
    private readonly client: CriClient,
    private readonly permissions: Permissions,
    private readonly log: Log,
  ) {}

  /** Returns the capabilities as of the newest answer. */
  list(): readonly string[] {
    return this.known;
  }

  /**
   * Reads the capabilities from the runtime.
   * @throws kind `unavailable` when the runtime does not answer.
   */
  async load(): Promise<void> {
    const status = await this.client.callQuick('Status', (calls, signal) =>
      calls.status({ verbose: true }, { signal }),
    );
    const before = this.known;
    this.known = toCapabilities(status, readMachineFeatures(), this.permissions);
    const added = this.known.filter((name) => !before.includes(name));
    const removed = before.filter((name) => !this.known.includes(name));
    if (before.length === 0 || added.length + removed.length === 0) return;
    this.log.info('capabilities of the container runtime changed', { added, removed });
  }

  /** Reads the capabilities again. When the runtime does not answer, the cached ones stay. */
  async refresh(): Promise<void> {
    try {
      await this.load();
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable')
        this.log.warn('capabilities not read', errorFields(reason));
    }
  }
}
