import { type CloudlessError } from '@cloudless/base';
import type { Metrics } from '@cloudless/observability';
import type { HealthReport } from '@cloudless/rpc-node/server';
import type { StorageFault } from '@cloudless/state-store';

const DISK_FULL = 'store: read-only, disk full: every write is refused, everything else continues';
const QUOTA_EXCEEDED =
  'store: read-only, space quota of etcd exceeded: every write is refused, everything else continues; see "etcd is full" in docs/operating/etcd.md';
const BACK_UP_FIRST =
  'back up the state with "cloudlessctl admin backup FILE" before this process is restarted';

/**
 * Collects what the store reports about itself, for /health, /ready and metrics, and decides when
 * the process must end.
 */
export class StoreHealth {
  /**
   * Resolves with the reason when this process can no longer serve: another coordinator leads or
   * uses the data directory, or the store is out of service. A new process may open the store
   * again.
   */
  readonly ended: Promise<CloudlessError>;
  /** Why the store refuses writes for lack of space; undefined while it has space. */
  private fullReason: string | undefined;
  private fault: StorageFault | undefined;
  private end: CloudlessError | undefined;
  private resolveEnded: (reason: CloudlessError) => void = () => undefined;

  /** @param listStalls - Returns the calls of the store that have not returned for long. */
  constructor(private readonly listStalls: () => readonly string[] = () => []) {
    this.ended = new Promise((resolve) => (this.resolveEnded = resolve));
  }

  /** Receives from the store that its disk is full (false), or has free space again (true). */
  readonly reportDiskSpace = (hasSpace: boolean): void => {
    this.fullReason = hasSpace ? undefined : DISK_FULL;
  };

  /**
   * Receives from the store that the space quota of etcd is exceeded (false), or no longer (true).
   */
  readonly reportQuota = (hasSpace: boolean): void => {
    this.fullReason = hasSpace ? undefined : QUOTA_EXCEEDED;
  };

  /**
   * Receives from the store that its data file, the lock or the content of the file was lost. A
   * lost data file does not end the process, because the data that the process can still read may
   * exist nowhere else.
   */
  readonly reportFault = (fault: StorageFault): void => {
    this.fault = fault;
    if (fault.lost !== 'dataFile') this.reportEnd(fault);
  };

  /**
   * Receives the reason when the leadership was lost or the store is out of service. Only the first
   * call has an effect.
   */
  readonly reportEnd = (reason: CloudlessError): void => {
    this.end ??= reason;
    this.resolveEnded(reason);
  };

  /**
   * Returns the health of the process for /health. A full disk or a lost data file is reported as
   * degraded, not as unhealthy, so that no supervisor restarts the process: reads and sessions go
   * on. So are `warnings`.
   */
  getHealth(warnings: readonly string[] = []): HealthReport {
    if (this.end !== undefined) return { ok: false, reasons: [this.end.message] };
    const degraded = [
      ...this.listReadinessWarnings(),
      ...(this.fault === undefined ? [] : [`${this.fault.message}; ${BACK_UP_FIRST}`]),
      ...this.listStalls(),
      ...warnings,
    ];
    return degraded.length === 0 ? { ok: true } : { ok: true, degraded };
  }

  /**
   * Returns why the store refuses writes for lack of space, for `degraded` of /ready; empty while it
   * has space. The status of /ready stays 200: reads, watches, sessions of agents and backups go on,
   * and a load balancer that gave up this coordinator would end them. With etcd all coordinators
   * have this problem at once, so that none would be left.
   */
  listReadinessWarnings(): readonly string[] {
    return this.fullReason === undefined ? [] : [this.fullReason];
  }

  /** Returns the reasons why /ready answers 503; empty while there is none. */
  getReadinessProblems(): readonly string[] {
    return [...new Set([this.end, this.fault].flatMap((reason) => reason?.message ?? []))];
  }

  /** Registers the gauge that shows whether the store accepts writes. */
  registerMetrics(metrics: Metrics): void {
    const writable = metrics.gauge({
      name: 'cloudless_store_writable',
      help: '1 while the state store accepts writes, 0 while its disk or the space quota of etcd is full, or its data file is lost.',
    });
    metrics.onExpose(() =>
      writable.set(
        this.fullReason === undefined && this.fault === undefined && this.end === undefined ? 1 : 0,
      ),
    );
  }
}
