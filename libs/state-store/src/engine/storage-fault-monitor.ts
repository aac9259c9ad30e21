import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { StorageFault } from './storage-fault.js';

export interface StorageFaultMonitorOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Interval of checks, in milliseconds. Undefined: only {@link StorageFaultMonitor.check}. */
  readonly intervalMs: number | undefined;
  /** Returns why the storage no longer has its files; undefined while it has them. */
  readonly checkFiles: () => StorageFault | undefined;
  /** Runs once, with the first fault. */
  readonly onFault: (fault: StorageFault) => void;
}

const LOG_TEXTS = {
  dataFile: 'data file lost',
  lock: 'lock lost',
  content: 'data file overwritten',
} as const;

/**
 * Checks at intervals, and at each call of `check`, that a storage still has its files. Logs and
 * reports the first fault, then checks no more.
 */
export class StorageFaultMonitor {
  private firstFault: StorageFault | undefined;
  private timer: Timer | undefined;

  constructor(private readonly options: StorageFaultMonitorOptions) {
    this.scheduleCheck();
  }

  /** The first fault; undefined while there is none. */
  get fault(): StorageFault | undefined {
    return this.firstFault;
  }

  /**
   * Checks the files, unless a fault was found before.
   * @returns The first fault; undefined while there is none.
   */
  check(): StorageFault | undefined {
    if (this.firstFault !== undefined) return this.firstFault;
    const fault = this.options.checkFiles();
    if (fault === undefined) return undefined;
    this.firstFault = fault;
    this.stop();
    this.options.log.error(`${LOG_TEXTS[fault.lost]}: writes are refused`, errorFields(fault));
    this.options.onFault(fault);
    return fault;
  }

  /** Stops the checks at intervals. */
  stop(): void {
    this.timer?.cancel();
  }

  private scheduleCheck(): void {
    const { clock, intervalMs } = this.options;
    if (intervalMs === undefined) return;
    this.timer = clock.setTimer(intervalMs, () => {
      if (this.check() === undefined) this.scheduleCheck();
    });
  }
}
