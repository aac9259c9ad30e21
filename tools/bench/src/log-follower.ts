import { timestampMs } from '@bufbuild/protobuf/wkt';
import { decodeLines, type CoordinatorClient, type LogEntry } from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';

/** Follows the log of one container and checks each line number. */
export class LogFollower {
  /** Number of received lines. */
  lines = 0;
  /** Number of missing lines that entries reported. */
  missingLines = 0;
  /** Number of gaps and repetitions in the line numbers that no entry reported. */
  violations = 0;
  /**
   * Milliseconds between reading a line on its node and its arrival, for the last line of each
   * message.
   */
  readonly delaysMs: number[] = [];
  /** Number of the next expected line. */
  private next = 1n;
  private readonly stopping = new AbortController();
  private readonly waiting: { readonly line: bigint; readonly resolve: () => void }[] = [];
  private readonly ended: Promise<void>;
  private failure: unknown;

  /** @param maxBatchBytes - 0: one line in each message, as for older clients. */
  constructor(client: CoordinatorClient, containerId: string, maxBatchBytes: number) {
    const stream = client.streamLogs(
      { containerId, follow: true, maxBatchBytes },
      { signal: this.stopping.signal },
    );
    this.ended = this.read(stream).catch((reason: unknown) => {
      this.failure = reason;
      for (const { resolve } of this.waiting) resolve();
    });
  }

  /**
   * Resolves when all lines up to `line` were received or reported as missing.
   * @throws An error when the stream ends before that.
   */
  async waitForLine(line: number): Promise<void> {
    if (this.next <= BigInt(line) && this.failure === undefined)
      await new Promise<void>((resolve) => this.waiting.push({ line: BigInt(line), resolve }));
    if (this.next <= BigInt(line))
      throw new Error(`the log ended before line ${line}`, { cause: this.failure });
  }

  /** Ends the stream. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await this.ended;
  }

  private async read(stream: AsyncIterable<LogEntry>): Promise<void> {
    for await (const entry of stream) {
      if (entry.skipped !== undefined) {
        const { firstSequence, lastSequence } = entry.skipped;
        this.countLines(firstSequence, lastSequence);
        this.missingLines += Number(lastSequence - firstSequence + 1n);
      }
      const lines = decodeLines(entry).filter(({ sequence }) => sequence > 0n);
      for (const { sequence } of lines) this.countLines(sequence, sequence);
      this.lines += lines.length;
      const time = lines.at(-1)?.time;
      if (time !== undefined)
        this.delaysMs.push(Math.max(0, systemClock.wallTime() - timestampMs(time)));
      for (const waiter of [...this.waiting]) {
        if (this.next <= waiter.line) continue;
        this.waiting.splice(this.waiting.indexOf(waiter), 1);
        waiter.resolve();
      }
    }
  }

  private countLines(first: bigint, last: bigint): void {
    if (first !== this.next) this.violations += 1;
    this.next = last + 1n;
  }
}
