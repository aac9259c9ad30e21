import type { Counter, Meter } from '@cloudless/base';

/** Metrics of node losses, quarantine, the replacement brake and the lease sweep. */
export class NodeMetrics {
  private readonly losses: Counter;
  private readonly stop: () => void;
  private maxLateMs = 0;

  /** @param readState - Reads the current values, at each scrape. */
  constructor(
    meter: Meter,
    readState: () => { readonly quarantined: number; readonly held: boolean },
  ) {
    this.losses = meter.counter({
      name: 'cloudless_node_losses_total',
      help: 'Nodes whose lease ended because no message came from their agent.',
    });
    const quarantined = meter.gauge({
      name: 'cloudless_nodes_quarantined',
      help: 'Nodes that receive nothing new because they were lost too often.',
    });
    const held = meter.gauge({
      name: 'cloudless_replacement_held',
      help: '1 while the replicas of lost nodes are not replaced because too many nodes fell silent together, else 0.',
    });
    const late = meter.gauge({
      name: 'cloudless_lease_sweep_lag_seconds',
      help: 'Longest delay of the lease sweep since the last scrape.',
    });
    this.stop = meter.onExpose(() => {
      const now = readState();
      quarantined.set(now.quarantined);
      held.set(now.held ? 1 : 0);
      late.set(this.maxLateMs / 1_000);
      this.maxLateMs = 0;
    });
  }

  /** Records the delay of a sweep, milliseconds; negative values count as no delay. */
  recordSweep(lateMs: number): void {
    this.maxLateMs = Math.max(this.maxLateMs, lateMs);
  }

  recordLoss(): void {
    this.losses.add();
  }

  close(): void {
    this.stop();
  }
}
