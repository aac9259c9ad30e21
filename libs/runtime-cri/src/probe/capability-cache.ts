import { errorFields, errorKindOf, type Log } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { confirmPacketFilter } from '../egress/confirm-packet-filter.js';
import { readMachineFeatures } from '../system/machine-features.js';
import { toCapabilities, type Permissions } from './capabilities.js';

/**
 * Cache of the capabilities of this node. Refresh the cache regularly, because a restarted
 * container runtime may have another configuration.
 */
export class CapabilityCache {
  private known: readonly string[] = [];

  /**
   * @param onChange - Called with the capabilities after the first read and after each read that
   *   has changed them, until the client is closed.
   */
  constructor(
    private readonly client: CriClient,
    private readonly permissions: Permissions,
    private readonly log: Log,
    private readonly onChange: (capabilities: readonly string[]) => void = () => undefined,
  ) {}

  /** Returns the capabilities as of the newest successful read; empty before the first read. */
  list(): readonly string[] {
    return this.known;
  }

  /**
   * Reads the capabilities from the runtime and the machine. Logs a change.
   * @throws kind `unavailable` when the runtime does not answer.
   */
  async load(): Promise<void> {
    const status = await this.client.callQuick('Status', (calls, signal) =>
      calls.status({ verbose: true }, { signal }),
    );
    const before = this.known;
    const machine = await confirmPacketFilter(readMachineFeatures());
    this.known = toCapabilities(status, machine, this.permissions);
    const added = this.known.filter((name) => !before.includes(name));
    const removed = before.filter((name) => !this.known.includes(name));
    if (added.length + removed.length === 0) return;
    if (!this.client.closed.aborted) this.onChange(this.known);
    if (before.length === 0) return;
    this.log.info('capabilities of the container runtime changed', { added, removed });
  }

  /** Like {@link CapabilityCache.load}, but on a failure keeps the cached capabilities. */
  async refresh(): Promise<void> {
    try {
      await this.load();
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable')
        this.log.warn('capabilities not read', errorFields(reason));
    }
  }
}
