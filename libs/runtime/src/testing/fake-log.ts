import type { Clock, StopSignal } from '@cloudless/base';
import { PushQueue } from '../events/push-queue.js';
import { LineSplitter, type SplitLine } from '../logs/line-splitter.js';
import { isLineSelected } from '../logs/log-selection.js';
import type { LogLine, LogRequest, LogStream } from '../container-runtime.js';

/** Number of kept lines. Older lines are dropped, as by log rotation. */
const KEPT_LINES = 20_000;
/** A follower with more unread lines than this fails with kind `exhausted`. */
const FOLLOWER_LIMIT = 100_000;

/** Log of one fake container. */
export class FakeLog {
  private readonly lines: LogLine[] = [];
  private readonly splitters = { stdout: new LineSplitter(), stderr: new LineSplitter() };
  private readonly followers = new Set<{
    readonly request: LogRequest;
    readonly queue: PushQueue<LogLine>;
  }>();
  private sequence = 0n;
  private hasEnded = false;

  constructor(private readonly clock: Clock) {}

  /** Adds output; a line is complete with its line feed. */
  write(stream: LogStream, bytes: Uint8Array): void {
    for (const line of this.splitters[stream].feed(bytes)) this.add(stream, line);
  }

  /** Ends the output; followers end after the last line. */
  end(): void {
    for (const stream of ['stdout', 'stderr'] as const) {
      const last = this.splitters[stream].flush();
      if (last !== undefined) this.add(stream, last);
    }
    this.hasEnded = true;
    for (const { queue } of this.followers) queue.end();
  }

  /** Returns the selected lines, and new lines until the end when the request follows. */
  read(request: LogRequest, signal: StopSignal): PushQueue<LogLine> {
    const follower = {
      request,
      queue: this.createQueue(signal, () => this.followers.delete(follower)),
    };
    const selected = this.lines.filter((line) => isLineSelected(request, line));
    const tail =
      request.tailLines === undefined
        ? selected
        : selected.slice(Math.max(0, selected.length - request.tailLines));
    for (const line of tail) follower.queue.push(line);
    if (!request.follow || this.hasEnded) follower.queue.end();
    else if (!signal.aborted) this.followers.add(follower);
    return follower.queue;
  }

  /** @param onClose - Called when the reader is done, and never before this method has returned. */
  private createQueue(signal: StopSignal, onClose: () => void): PushQueue<LogLine> {
    // With an aborted signal, the queue closes in its constructor.
    return new PushQueue({ limit: FOLLOWER_LIMIT, signal, onClose: () => queueMicrotask(onClose) });
  }

  private add(stream: LogStream, { text, partial }: SplitLine): void {
    this.sequence += 1n;
    const line: LogLine = {
      sequence: this.sequence,
      stream,
      timeMs: this.clock.wallTime(),
      text,
      partial,
    };
    this.lines.push(line);
    if (this.lines.length > KEPT_LINES) this.lines.shift();
    for (const { request, queue } of this.followers)
      if (isLineSelected(request, line)) queue.push(line);
  }
}
