import type { Counter, Meter } from '@cloudless/base';

/** What is measured of the life of nodes. */
export class NodeMetrics {
  private readonly losses: Counter;
  private readonly stop: () => void;
  private maxLateMs = 0;

  /** @param look - What is true now. */
  constructor(meter: Meter, look: () => { readonly quarantined: number; readonly held: boolean }) {
    this.losses = meter.counter({
      name: 'cloudless_node_losses_total',
      help: 'Nodes whose lease ended: nothing was heard from their agent.',
    });
    const quarantined = meter.gauge({
      name: 'cloudless_nodes_quarantined',
      help: 'Nodes that get nothing new because they were lost too often of late.',
    });
    const held = meter.gauge({
      name: 'cloudless_replacement_held',
      help: '1 while the replicas of lost nodes are not replaced because too many nodes fell silent together, else 0.',
    });
    const late = meter.gauge({
      name: 'cloudless_lease_sweep_lag_seconds',
      help: 'How late the sweep of leases came at most since the last scrape.',
    });
    this.stop = meter.onExpose(() => {
      const now = look();
      quarantined.set(now.quarantined);
      held.set(now.held ? 1 : 0);
      late.set(this.maxLateMs / 1_000);
      this.maxLateMs = 0;
    });
  }

  /** A sweep came so late, milliseconds; less than 0 is not late. */
  swept(lateMs: number): void {
    this.maxLateMs = Math.max(this.maxLateMs, lateMs);
  }

  lost(): void {
    this.losses.add();
  }

  close(): void {
    this.stop();
  }
}
