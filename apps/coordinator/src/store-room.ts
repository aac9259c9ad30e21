import type { Metrics } from '@cloudless/observability';
import type { HealthReport } from '@cloudless/rpc-server';

/** Whether the disk under the state store takes writes, for probes and metrics. */
export class StoreRoom {
  private hasRoom = true;

  /** Told by the store. */
  readonly note = (hasRoom: boolean): void => {
    this.hasRoom = hasRoom;
  };

  /** A full disk is no reason to restart: reads, sessions and replicas go on. */
  health(): HealthReport {
    return this.hasRoom
      ? { ok: true }
      : { ok: true, degraded: ['disk full: the state takes no writes, everything else goes on'] };
  }

  register(metrics: Metrics): void {
    const writable = metrics.gauge({
      name: 'cloudless_store_writable',
      help: '1 while the state store takes writes, 0 while its disk is full.',
    });
    metrics.onExpose(() => writable.set(this.hasRoom ? 1 : 0));
  }
}
