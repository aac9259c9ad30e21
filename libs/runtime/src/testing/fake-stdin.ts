/** What a pipe holds before its writer has to wait. */
const PIPE_BYTES = 64 * 1024;

/** The input of a fake process: what was sent and not read yet. */
export class FakeStdin {
  private readonly bytes: number[] = [];
  private over = false;
  private readonly readers: (() => void)[] = [];
  private readonly writers: (() => void)[] = [];

  /** Nothing more will come. */
  get ended(): boolean {
    return this.over;
  }

  push(data: Uint8Array): void {
    for (const byte of data) this.bytes.push(byte);
    this.wake(this.readers);
  }

  end(): void {
    this.over = true;
    this.wake(this.readers);
  }

  /** All that is there. */
  take(): Uint8Array {
    const taken = Uint8Array.from(this.bytes.splice(0));
    this.wake(this.writers);
    return taken;
  }

  /** Takes a line, or what is there at the end; false when it has not come yet. */
  takeLine(): boolean {
    const end = this.bytes.indexOf(10);
    if (end < 0 && !this.over) return false;
    this.bytes.splice(0, end < 0 ? this.bytes.length : end + 1);
    this.wake(this.writers);
    return true;
  }

  /** Calls `action` once, when more has come or the end. */
  whenMore(action: () => void): void {
    this.readers.push(action);
  }

  /** Resolves when there is room for more. */
  async room(): Promise<void> {
    while (this.bytes.length >= PIPE_BYTES)
      await new Promise<void>((resolve) => this.writers.push(resolve));
  }

  private wake(waiting: (() => void)[]): void {
    for (const action of waiting.splice(0)) action();
  }
}
