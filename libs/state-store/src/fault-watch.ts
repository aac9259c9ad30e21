import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { StorageFault } from './storage-fault.js';

/** Needs of a {@link FaultWatch}. */
export interface FaultWatchOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Undefined: only when asked. */
  readonly everyMs: number | undefined;
  /** As {@link Storage.fault}. */
  readonly look: () => StorageFault | undefined;
  /** Called once, with what was found first. */
  readonly onFault: (fault: StorageFault) => void;
}

const LOST = { dataFile: 'data file lost', lock: 'lock lost', content: 'data file overwritten' } as const;

/** Looks at intervals, and whenever asked, whether a storage still has its files, and keeps what was found first. */
export class FaultWatch {
  private found: StorageFault | undefined;
  private timer: Timer | undefined;

  constructor(private readonly options: FaultWatchOptions) {
    this.lookLater();
  }

  /** What was found so far. */
  get fault(): StorageFault | undefined {
    return this.found;
  }

  /** Looks now. */
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
