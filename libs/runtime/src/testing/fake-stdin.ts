/** Capacity of a pipe on Linux: a writer waits while so many bytes are unread. */
const PIPE_BYTES = 64 * 1024;

/** The standard input of a fake process. */
export class FakeStdin {
  private readonly bytes: number[] = [];
  private hasEnded = false;
  private readonly readers: (() => void)[] = [];
  private readonly writers: (() => void)[] = [];

  /** True after the end of the input. */
  get ended(): boolean {
    return this.hasEnded;
  }

  push(data: Uint8Array): void {
    for (const byte of data) this.bytes.push(byte);
    this.wake(this.readers);
  }

  end(): void {
    this.hasEnded = true;
    this.wake(this.readers);
  }

  /** Reads all buffered bytes. */
  readAll(): Uint8Array {
    const bytes = Uint8Array.from(this.bytes.splice(0));
    this.wake(this.writers);
    return bytes;
  }

  /**
   * Reads one line, or the rest of the input after its end.
   * @returns False when no complete line is buffered and the input has not ended.
   */
  readLine(): boolean {
    const end = this.bytes.indexOf(10);
    if (end < 0 && !this.hasEnded) return false;
    this.bytes.splice(0, end < 0 ? this.bytes.length : end + 1);
    this.wake(this.writers);
    return true;
  }

  /** Calls `action` once when more input or the end arrives. */
  onMore(action: () => void): void {
    this.readers.push(action);
  }

  /** Resolves when there is room for more input. */
  async waitForRoom(): Promise<void> {
    while (this.bytes.length >= PIPE_BYTES)
      await new Promise<void>((resolve) => this.writers.push(resolve));
  }

  private wake(waiting: (() => void)[]): void {
    for (const action of waiting.splice(0)) action();
  }
}
