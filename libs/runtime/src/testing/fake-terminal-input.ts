import type { ExecInput, TerminalSize } from '../container-runtime.js';
import { FakeStdin } from './fake-stdin.js';

/** Moves what the caller of a command sends to the fake process. */
export class FakeTerminalInput {
  readonly stdin = new FakeStdin();
  private current: TerminalSize | undefined;
  private readonly items: AsyncIterator<ExecInput>;

  constructor(input: AsyncIterable<ExecInput>, size: TerminalSize | undefined) {
    this.items = input[Symbol.asyncIterator]();
    this.current = size;
  }

  get size(): TerminalSize | undefined {
    return this.current;
  }

  /**
   * Takes input as long as the process reads. @param failed - Told when the caller's side failed.
   */
  async pump(failed: (reason: unknown) => void): Promise<void> {
    try {
      for (let item = await this.items.next(); item.done !== true; item = await this.items.next()) {
        if (item.value.kind === 'stdin') this.stdin.push(item.value.data);
        else if (item.value.kind === 'end') this.stdin.end();
        else if (this.current !== undefined)
          this.current = { columns: item.value.columns, rows: item.value.rows };
        await this.stdin.room();
      }
      this.stdin.end();
    } catch (reason) {
      failed(reason);
    }
  }

  /** The process has ended: nobody reads any more. */
  leave(): void {
    this.stdin.end();
    this.stdin.take();
    void this.items.return?.().catch(() => undefined);
  }
}
