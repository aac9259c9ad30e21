import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { StorageFault } from './storage-fault.js';

export interface StorageFaultMonitorOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Interval of checks, in milliseconds. Undefined: only calls of `check` check the files. */
  readonly intervalMs: number | undefined;
  /** Same as {@link Storage.fault}. */
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
 * Checks whether a storage still has its files, at intervals and at each call of `check`. Keeps the
 * first fault.
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

  /** Checks the files, unless a fault is known. @returns The first fault. */
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
