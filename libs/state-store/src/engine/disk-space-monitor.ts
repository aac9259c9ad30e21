import type { Clock, Log, Timer } from '@cloudless/base';

/**
 * A disk counts as full until no write was refused for this time, which is long enough that failing
 * large writes recur meanwhile.
 */
const QUIET_PERIOD_MS = 5_000;

export interface DiskSpaceMonitorOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Writes a small record; rejects while the disk is full. Detects free space without callers. */
  readonly probe: () => Promise<unknown>;
  /** Runs with false when the disk becomes full, and with true when it has space again. */
  readonly onDiskSpaceChange: (hasSpace: boolean) => void;
}

/**
 * Monitors whether the disk is full and reports each change once. On an almost full disk a small
 * write can succeed between two large ones that fail, so the disk counts as full until no write was
 * refused for a while.
 */
export class DiskSpaceMonitor {
  private isFull = false;
  private wasRefusedSinceProbe = false;
  private timer: Timer | undefined;
  private stopped = false;

  constructor(private readonly options: DiskSpaceMonitorOptions) {}

  /** Records that a write failed because the disk is full. */
  recordRefusal(): void {
    this.wasRefusedSinceProbe = true;
    if (this.isFull || this.stopped) return;
    this.isFull = true;
    this.options.log.warn('disk full: writes are refused until space is free, reads continue');
    this.options.onDiskSpaceChange(false);
    this.scheduleProbe();
  }

  /** Stops probing and reporting. */
  stop(): void {
    this.stopped = true;
    this.timer?.cancel();
  }

  private scheduleProbe(): void {
    this.wasRefusedSinceProbe = false;
    this.timer = this.options.clock.setTimer(QUIET_PERIOD_MS, () => void this.probeDisk());
  }

  private async probeDisk(): Promise<void> {
    // a refused probe also calls recordRefusal
    if (!this.wasRefusedSinceProbe) await this.options.probe().catch(() => undefined);
    if (this.stopped) return;
    if (this.wasRefusedSinceProbe) return this.scheduleProbe();
    this.isFull = false;
    this.options.log.info('disk has free space again: writes continue');
    this.options.onDiskSpaceChange(true);
  }
}
