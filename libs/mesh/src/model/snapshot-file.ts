import { open, readFile, rename } from 'node:fs/promises';
import { errorCodeOf, errorFields, type Clock, type Log, type Timer } from '@cloudless/base';

/** Shortest time between two writes, milliseconds. A snapshot may lag behind: it only bridges. */
const MIN_INTERVAL_MS = 5_000;
/** The time between two writes is at least this many times the duration of the last write. */
const INTERVAL_PER_DURATION = 50;

/**
 * Keeps the network in a file, whole or not at all, so that a proxy serves after a restart of the
 * machine while no coordinator answers.
 */
export class SnapshotFile {
  private timer: Timer | undefined;
  private writing: Promise<void> = Promise.resolve();
  private nextAtMs = 0;
  private isClosed = false;

  /** @param encode - Returns the content at the time of a write. */
  constructor(
    private readonly path: string,
    private readonly encode: () => Uint8Array,
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /** Returns the stored network; undefined without a file, or when the file cannot be read. */
  async load(): Promise<Uint8Array | undefined> {
    try {
      return await readFile(this.path);
    } catch (reason) {
      if (errorCodeOf(reason) !== 'ENOENT')
        this.log.warn('the stored network cannot be read', {
          path: this.path,
          ...errorFields(reason),
        });
      return undefined;
    }
  }

  /** Writes soon. Changes until then are in the same write. */
  schedule(): void {
    if (this.timer !== undefined || this.isClosed) return;
    const delayMs = Math.max(this.nextAtMs - this.clock.now(), MIN_INTERVAL_MS / 10);
    this.timer = this.clock.setTimer(delayMs, () => {
      this.timer = undefined;
      this.enqueueWrite();
    });
  }

  /** Writes nothing any more: another process keeps the file from now on. */
  stop(): void {
    this.isClosed = true;
    this.timer?.cancel();
    this.timer = undefined;
  }

  /** Writes what is scheduled, and stops. */
  async close(): Promise<void> {
    if (this.timer !== undefined) this.enqueueWrite();
    this.stop();
    await this.writing;
  }

  /** One write at a time: two would mix their bytes in one file. */
  private enqueueWrite(): void {
    this.writing = this.writing.then(() => this.write());
  }

  private async write(): Promise<void> {
    const startMs = this.clock.now();
    try {
      const temporary = `${this.path}.${process.pid}.tmp`;
      const file = await open(temporary, 'w', 0o600);
      try {
        await file.writeFile(this.encode());
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(temporary, this.path);
    } catch (reason) {
      this.log.warn('the network cannot be stored', { path: this.path, ...errorFields(reason) });
    }
    const nowMs = this.clock.now();
    this.nextAtMs = nowMs + Math.max(MIN_INTERVAL_MS, INTERVAL_PER_DURATION * (nowMs - startMs));
  }
}
