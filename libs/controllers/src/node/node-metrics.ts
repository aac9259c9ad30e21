import type { Counter, Meter } from '@cloudless/base';

/** Metrics of node losses, quarantine, the replacement brake and the lease sweep. */
export class NodeMetrics {
  private readonly losses: Counter;
  private readonly stop: () => void;
  private maxDelayMs = 0;

  /** @param readState - Called at each scrape. `held`: the replacement brake holds. */
  constructor(
    meter: Meter,
    readState: () => {
      readonly quarantined: number;
      readonly slow: number;
      readonly away: number;
      readonly held: boolean;
    },
  ) {
    this.losses = meter.counter({
      name: 'cloudless_node_losses_total',
      help: 'Nodes that were lost: their lease ended, their agent did not return, or it hung.',
    });
    const quarantined = meter.gauge({
      name: 'cloudless_nodes_quarantined',
      help: 'Nodes that receive nothing new because they were lost too often.',
    });
    const slow = meter.gauge({
      name: 'cloudless_agents_slow',
      help: 'Nodes with a live session whose agent has a main loop that does not turn.',
    });
    const away = meter.gauge({
      name: 'cloudless_agents_away',
      help: 'Nodes whose agent left in good order and may still return within the leave grace.',
    });
    const held = meter.gauge({
      name: 'cloudless_replacement_held',
      help: '1 while the replicas of lost nodes are not replaced because too many nodes fell silent together, else 0.',
    });
    const sweepDelay = meter.gauge({
      name: 'cloudless_lease_sweep_lag_seconds',
      help: 'Longest delay of the lease sweep since the last scrape.',
    });
    this.stop = meter.onExpose(() => {
      const state = readState();
      quarantined.set(state.quarantined);
      slow.set(state.slow);
      away.set(state.away);
      held.set(state.held ? 1 : 0);
      sweepDelay.set(this.maxDelayMs / 1_000);
      this.maxDelayMs = 0;
    });
  }

  /**
   * Records a lease sweep.
   * @param delayMs - Milliseconds by which the sweep was late; a negative value counts as 0.
   */
  recordSweep(delayMs: number): void {
    this.maxDelayMs = Math.max(this.maxDelayMs, delayMs);
  }

  /** Counts a node whose lease ended. */
  recordLoss(): void {
    this.losses.add();
  }

  close(): void {
    this.stop();
  }
}
