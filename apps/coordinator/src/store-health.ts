import { type CloudlessError } from '@cloudless/base';
import type { Metrics } from '@cloudless/observability';
import type { HealthReport } from '@cloudless/rpc-node/server';
import type { StorageFault } from '@cloudless/state-store';

const DISK_FULL = 'disk full: the state store refuses writes, everything else continues';
const BACK_UP_FIRST =
  'back up the state with "cloudlessctl admin backup FILE" before this process is restarted';

/** Health of the store: reports to probes and metrics, and decides about the end of the process. */
export class StoreHealth {
  /**
   * Resolves with the reason when this process can no longer serve: another coordinator has the
   * state, or the store is out of service. A new process can open the store again.
   */
  readonly ended: Promise<CloudlessError>;
  private hasDiskSpace = true;
  private fault: StorageFault | undefined;
  private end: CloudlessError | undefined;
  private resolveEnded: (reason: CloudlessError) => void = () => undefined;

  constructor() {
    this.ended = new Promise((resolve) => (this.resolveEnded = resolve));
  }

  /** Callback of the store: the disk is full, or has free space again. */
  readonly reportDiskSpace = (hasSpace: boolean): void => {
    this.hasDiskSpace = hasSpace;
  };

  /**
   * Callback of the store: its files were lost. A lost data file does not end the process, because
   * the data that the process still reads may exist nowhere else.
   */
  readonly reportFault = (fault: StorageFault): void => {
    this.fault = fault;
    if (fault.lost !== 'dataFile') this.reportEnd(fault);
  };

  /**
   * Callback: the leadership was lost or the store is out of service. Only the first call counts.
   */
  readonly reportEnd = (reason: CloudlessError): void => {
    this.end ??= reason;
    this.resolveEnded(reason);
  };

  /**
   * A full disk or a lost data file is no reason to restart: reads, sessions and replicas continue.
   */
  getHealth(): HealthReport {
    if (this.end !== undefined) return { ok: false, reasons: [this.end.message] };
    const degraded = [
      ...(this.hasDiskSpace ? [] : [DISK_FULL]),
      ...(this.fault === undefined ? [] : [`${this.fault.message}; ${BACK_UP_FIRST}`]),
    ];
    return degraded.length === 0 ? { ok: true } : { ok: true, degraded };
  }

  /** Returns the reasons why changes cannot be served; empty when they can. */
  getReadinessProblems(): readonly string[] {
    return [...new Set([this.end, this.fault].flatMap((reason) => reason?.message ?? []))];
  }

  registerMetrics(metrics: Metrics): void {
    const writable = metrics.gauge({
      name: 'cloudless_store_writable',
      help: '1 while the state store accepts writes, 0 while its disk is full or its data file is lost.',
    });
    metrics.onExpose(() =>
      writable.set(this.hasDiskSpace && this.fault === undefined && this.end === undefined ? 1 : 0),
    );
  }
}
