import { CloudlessError, type Clock } from '@cloudless/base';
import {
  MemoryStorage,
  type LoggedTransaction,
  type Storage,
  type StorageWriter,
} from '@cloudless/state-store';
import { neverSettle, type SimProcess } from './sim-process.js';
import type { SimRandom } from './sim-random.js';

/** The coordinator's storage, which outlives every coordinator process. */
export class SimDisk {
  /** Shortest and longest duration of a write, milliseconds. */
  delayMs: readonly [number, number] = [0, 0];
  /** True while every write fails. */
  full = false;
  private readonly storage: RecordingStorage;

  /** @param onCommitted - Called for every transaction when it becomes durable. */
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
   * Returns the disk as one process sees it. A write in progress when the process dies takes effect
   * completely or not at all.
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
    if (process.isDead) return neverSettle();
    const [from, to] = this.delayMs;
    if (to > 0) {
      const takesEffect = await this.waitForFlush(process, this.random.between(from, to));
      if (!takesEffect) return neverSettle();
    }
    if (this.full) throw new CloudlessError('exhausted', 'the disk is full: nothing was written');
    return this.storage.write(action);
  }

  /**
   * Waits for the duration of a write.
   * @returns False when the write has no effect: for half of the writes during which the process
   *   dies.
   */
  private waitForFlush(process: SimProcess, delayMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = this.time.setTimer(delayMs, () => resolve(true));
      process.onDeath(() => {
        timer.cancel();
        resolve(this.random.chance(0.5));
      });
    });
  }
}

/** A storage that reports each transaction after it became durable. */
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
