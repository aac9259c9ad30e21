import { CloudlessError, type Clock } from '@cloudless/base';
import {
  MemoryStorage,
  type LoggedTransaction,
  type Storage,
  type StorageWriter,
} from '@cloudless/state-store';
import { never, type SimProcess } from './sim-process.js';
import type { SimRandom } from './sim-random.js';

/** The storage of the coordinator: it outlives every coordinator. */
export class SimDisk {
  /** How long writes take, milliseconds from and to. */
  delayMs: readonly [number, number] = [0, 0];
  full = false;
  private readonly storage: RecordingStorage;

  /** @param onCommitted - Told of every transaction as it becomes durable. */
  constructor(
    private readonly time: Clock,
    private readonly random: SimRandom,
    readonly historyLimit: number,
    onCommitted: (transactions: readonly LoggedTransaction[]) => void,
  ) {
    this.storage = new RecordingStorage(historyLimit, onCommitted);
  }

  get compactedRevision(): bigint {
    return this.storage.head().compactedRevision;
  }

  get revision(): bigint {
    return this.storage.head().revision;
  }

  /**
   * The disk as one process sees it. A write that is under way when the process dies is made whole
   * or not at all.
   */
  openFor(process: SimProcess): Storage {
    const { storage } = this;
    return {
      read: (view) => storage.read(view),
      write: (action) => this.write(process, action),
      leases: () => storage.leases(),
      close: () => Promise.resolve(),
    };
  }

  private async write<Result>(
    process: SimProcess,
    action: (writer: StorageWriter) => Result,
  ): Promise<Result> {
    if (process.isDead) return never();
    const [from, to] = this.delayMs;
    if (to > 0) {
      const isMade = await this.flushed(process, this.random.between(from, to));
      if (!isMade) return never();
    }
    if (this.full) throw new CloudlessError('exhausted', 'the disk is full: nothing was written');
    return this.storage.write(action);
  }

  /** @returns Whether the write is made: always, unless the process dies meanwhile. */
  private flushed(process: SimProcess, delayMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = this.time.setTimer(delayMs, () => resolve(true));
      process.onDeath(() => {
        timer.cancel();
        resolve(this.random.chance(0.5));
      });
    });
  }
}

class RecordingStorage extends MemoryStorage {
  constructor(
    historyLimit: number,
    private readonly onCommitted: (transactions: readonly LoggedTransaction[]) => void,
  ) {
    super(historyLimit);
  }

  override finish(...args: Parameters<MemoryStorage['finish']>): void {
    super.finish(...args);
    this.onCommitted(args[0]);
  }
}
