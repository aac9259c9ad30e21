import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { StorageFault } from './storage-fault.js';

export interface FaultWatchOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Interval of checks, in milliseconds. Undefined: only calls of `check` check the files. */
  readonly everyMs: number | undefined;
  /** Same as {@link Storage.fault}. */
  readonly look: () => StorageFault | undefined;
  /** Runs once, with the first fault. */
  readonly onFault: (fault: StorageFault) => void;
}

const LOST = {
  dataFile: 'data file lost',
  lock: 'lock lost',
  content: 'data file overwritten',
} as const;

/**
 * Checks whether a storage still has its files, at intervals and at each call of `check`. Keeps the
 * first fault.
 */
export class FaultWatch {
  private found: StorageFault | undefined;
  private timer: Timer | undefined;

  constructor(private readonly options: FaultWatchOptions) {
    this.lookLater();
  }

  /** The first fault; undefined while there is none. */
  get fault(): StorageFault | undefined {
    return this.found;
  }

  /** Checks the files, unless a fault is known. @returns The first fault. */
  look(): StorageFault | undefined {
    if (this.found !== undefined) return this.found;
    const fault = this.options.look();
    if (fault === undefined) return undefined;
    this.found = fault;
    this.stop();
    this.options.log.error(`${LOST[fault.lost]}: writes are refused`, errorFields(fault));
    this.options.onFault(fault);
    return fault;
  }

  stop(): void {
    this.timer?.cancel();
  }

  private lookLater(): void {
    const { clock, everyMs } = this.options;
    if (everyMs === undefined) return;
    this.timer = clock.setTimer(everyMs, () => {
      if (this.look() === undefined) this.lookLater();
    });
  }
}
