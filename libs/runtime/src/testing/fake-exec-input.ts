import type { ExecInput, TerminalSize } from '../container-runtime.js';
import { FakeStdin } from './fake-stdin.js';

/** Passes the streamed input of a command to a fake process. */
export class FakeExecInput {
  readonly stdin = new FakeStdin();
  private current: TerminalSize | undefined;
  private readonly items: AsyncIterator<ExecInput>;

  constructor(input: AsyncIterable<ExecInput>, size: TerminalSize | undefined) {
    this.items = input[Symbol.asyncIterator]();
    this.current = size;
  }

  /** Size of the terminal after the last `resize`; undefined without a terminal. */
  get size(): TerminalSize | undefined {
    return this.current;
  }

  /**
   * Reads the input as fast as the process reads, until the end of the input.
   * @param onFailure - Called with the error when the input fails.
   */
  async pump(onFailure: (reason: unknown) => void): Promise<void> {
    try {
      for (let item = await this.items.next(); item.done !== true; item = await this.items.next()) {
        if (item.value.kind === 'stdin') this.stdin.push(item.value.data);
        else if (item.value.kind === 'end') this.stdin.end();
        else if (this.current !== undefined)
          this.current = { columns: item.value.columns, rows: item.value.rows };
        await this.stdin.waitForRoom();
      }
      this.stdin.end();
    } catch (reason) {
      onFailure(reason);
    }
  }

  /** Ends the input after the process has exited. */
  close(): void {
    this.stdin.end();
    this.stdin.readAll();
    void this.items.return?.().catch(() => undefined);
  }
}
