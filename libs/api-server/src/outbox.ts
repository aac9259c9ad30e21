import type { Clock, StopSignal } from '@cloudless/base';
import { BOOKMARK_MS, Wakeup } from './changes.js';

/**
 * Messages to one agent. A newer message with the same key replaces the one that waits, so the
 * number of keys bounds it however slow the agent reads.
 */
export class Outbox<Message> {
  private readonly waiting = new Map<string, Message>();
  private readonly wakeup = new Wakeup();
  private closed = false;

  push(key: string, message: Message): void {
    if (this.closed) return;
    this.waiting.delete(key);
    this.waiting.set(key, message);
    this.wakeup.notify();
  }

  /** Takes a message back that was not read yet. */
  drop(key: string): void {
    this.waiting.delete(key);
  }

  /** How many messages wait. */
  get size(): number {
    return this.waiting.size;
  }

  close(): void {
    this.closed = true;
    this.wakeup.notify();
  }

  /** The messages in order of their pushing; ends when closed or aborted. */
  async *drain(clock: Clock, signal: StopSignal): AsyncGenerator<Message> {
    while (!this.closed && !signal.aborted) {
      for (const [key, message] of this.waiting) {
        this.waiting.delete(key);
        yield message;
        if (this.closed || signal.aborted) return;
      }
      if (this.waiting.size === 0) await this.wakeup.wait(clock, BOOKMARK_MS, signal);
    }
  }
}
