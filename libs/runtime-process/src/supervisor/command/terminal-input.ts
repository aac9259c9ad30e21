import { write } from 'node:fs';
import { errorCodeOf, type Clock, type Timer } from '@cloudless/base';

/** Delay between attempts to write to a terminal whose buffer of some KiB is full. */
const RETRY_MS = 10;
/** Queued bytes from which the sender should wait. */
const HIGH_WATER_MARK_BYTES = 16 * 1024;

/**
 * Writes to a terminal without blocking. The terminal stream of Node.js would block the whole
 * process while no process reads at the other end.
 */
export class TerminalInput {
  private queue: Uint8Array[] = [];
  private queuedBytes = 0;
  private isWriting = false;
  private isClosed = false;
  private retryTimer: Timer | undefined;
  private onIdle: (() => void) | undefined;

  /**
   * @param fd - Non-blocking descriptor of the terminal. The caller closes it after {@link close}.
   * @param onDrained - Called when the sender may continue after `write` returned false, and when
   *   the process at the other end has ended.
   */
  constructor(
    private readonly fd: number,
    private readonly clock: Clock,
    private readonly onDrained: () => void,
  ) {}

  /**
   * Queues a chunk.
   * @returns False when the sender should wait for `onDrained` before it writes more.
   */
  write(chunk: Uint8Array): boolean {
    if (this.isClosed || chunk.length === 0) return true;
    this.queue.push(chunk);
    this.queuedBytes += chunk.length;
    this.writeNext();
    return this.queuedBytes < HIGH_WATER_MARK_BYTES;
  }

  /**
   * Discards the queued input. May be called more than once.
   * @param done - Called when no write uses the descriptor any more; at once if none is pending.
   */
  close(done: () => void): void {
    this.isClosed = true;
    this.queue = [];
    this.retryTimer?.cancel();
    if (!this.isWriting) return done();
    const earlier = this.onIdle;
    this.onIdle = () => {
      earlier?.();
      done();
    };
  }

  private writeNext(): void {
    const [first] = this.queue;
    if (first === undefined || this.isWriting || this.isClosed) return;
    this.isWriting = true;
    write(this.fd, first, (reason, written) => {
      this.isWriting = false;
      if (this.isClosed) return this.onIdle?.();
      if (reason !== null) return this.onWriteFailed(reason);
      this.onWritten(first, written);
      this.writeNext();
    });
  }

  private onWriteFailed(reason: unknown): void {
    if (errorCodeOf(reason) === 'EAGAIN')
      this.retryTimer = this.clock.setTimer(RETRY_MS, () => this.writeNext());
    else this.discardAll(); // the process has ended
  }

  private onWritten(chunk: Uint8Array, written: number): void {
    if (written < chunk.length) this.queue[0] = chunk.subarray(written);
    else this.queue.shift();
    const before = this.queuedBytes;
    this.queuedBytes -= written;
    if (before >= HIGH_WATER_MARK_BYTES && this.queuedBytes < HIGH_WATER_MARK_BYTES)
      this.onDrained();
  }

  private discardAll(): void {
    this.queue = [];
    this.queuedBytes = 0;
    this.isClosed = true;
    this.onDrained();
  }
}
