import type { StopSignal } from '@cloudless/base';

/**
 * Messages to one agent that wait to be sent. A newer message replaces a waiting message with the
 * same key, so a slow agent never has more waiting messages than there are keys.
 * @example
 * ```ts
 * const outbox = new SessionOutbox<string>();
 * outbox.push('a', 'a1');
 * outbox.push('b', 'b1');
 * outbox.push('a', 'a2'); // replaces a1
 * for await (const message of outbox.drain(signal)) … // b1, a2
 * ```
 */
export class SessionOutbox<Message> {
  private readonly waiting = new Map<string, Message>();
  /** Ends the wait of {@link drain}; undefined while nothing waits. */
  private wake: (() => void) | undefined;
  private closed = false;
  private isReaderWaiting = false;

  /** Adds a message. Without effect after {@link close}. */
  push(key: string, message: Message): void {
    if (this.closed) return;
    this.waiting.delete(key);
    this.waiting.set(key, message);
    this.wakeReader();
  }

  /**
   * True while the reader of {@link drain} has passed on all earlier messages and waits for the
   * next one: a message that is sent without the outbox overtakes no other message.
   */
  get canSendDirectly(): boolean {
    return this.isReaderWaiting;
  }

  private wakeReader(): void {
    this.isReaderWaiting = false;
    this.wake?.();
  }

  /** Removes a message that was not sent yet. */
  drop(key: string): void {
    this.waiting.delete(key);
  }

  /** Number of waiting messages. */
  get size(): number {
    return this.waiting.size;
  }

  /** Ends {@link drain}. Waiting messages are not sent. */
  close(): void {
    this.closed = true;
    this.wakeReader();
  }

  /**
   * Yields the messages in the order of their last push. Ends when the outbox is closed or the
   * signal is aborted.
   */
  async *drain(signal: StopSignal): AsyncGenerator<Message> {
    const onAbort = (): void => this.wakeReader();
    signal.addEventListener('abort', onAbort);
    try {
      while (!this.closed && !signal.aborted) {
        for (const [key, message] of this.waiting) {
          this.waiting.delete(key);
          yield message;
          if (this.closed || signal.aborted) return;
        }
        if (this.waiting.size === 0)
          await new Promise<void>((resolve) => {
            this.wake = resolve;
            this.isReaderWaiting = true;
          });
        this.wake = undefined;
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }
}
