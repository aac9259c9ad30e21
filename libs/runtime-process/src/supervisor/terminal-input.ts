import { write } from 'node:fs';
import type { Clock, Timer } from '@cloudless/base';

/** Delay between writes to a terminal whose process does not read; it accepts some KiB. */
const RETRY_MS = 10;
/** Queued bytes above which the sender should wait. */
const HIGH_BYTES = 16 * 1024;

/**
 * Writes to a terminal without blocking. The terminal stream of Node.js would block the whole
 * process while nobody reads at the other end.
 */
export class TerminalInput {
  private waiting: Uint8Array[] = [];
  private size = 0;
  private writing = false;
  private over = false;
  private retry: Timer | undefined;
  private onIdle: (() => void) | undefined;

  constructor(
    private readonly fd: number,
    private readonly clock: Clock,
    private readonly onDrained: () => void,
  ) {}

  /** False when the sender should wait for `onDrained`. */
  write(chunk: Uint8Array): boolean {
    if (this.over || chunk.length === 0) return true;
    this.waiting.push(chunk);
    this.size += chunk.length;
    this.next();
    return this.size < HIGH_BYTES;
  }

  /**
   * Discards the queued input.
   * @param done - Called when the descriptor is not used any more; at once if it is idle.
   */
  close(done: () => void): void {
    this.over = true;
    this.waiting = [];
    this.retry?.cancel();
    if (!this.writing) return done();
    const earlier = this.onIdle;
    this.onIdle = () => {
      earlier?.();
      done();
    };
  }

  private next(): void {
    const [first] = this.waiting;
    if (first === undefined || this.writing || this.over) return;
    this.writing = true;
    write(this.fd, first, (reason, written) => {
      this.writing = false;
      if (this.over) return this.onIdle?.();
      if (reason !== null) return this.failed(reason);
      this.took(first, written);
      this.next();
    });
  }

  private failed(reason: NodeJS.ErrnoException): void {
    if (reason.code === 'EAGAIN') this.retry = this.clock.setTimer(RETRY_MS, () => this.next());
    else this.dropAll(); // the process has ended
  }

  private took(chunk: Uint8Array, written: number): void {
    if (written < chunk.length) this.waiting[0] = chunk.subarray(written);
    else this.waiting.shift();
    const before = this.size;
    this.size -= written;
    if (before >= HIGH_BYTES && this.size < HIGH_BYTES) this.onDrained();
  }

  private dropAll(): void {
    this.waiting = [];
    this.size = 0;
    this.over = true;
    this.onDrained();
  }
}
