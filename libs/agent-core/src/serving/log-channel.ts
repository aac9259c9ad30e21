import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import {
  computeLogCost,
  LogChannelFrameSchema,
  TunnelEndSchema,
  TunnelErrorSchema,
  type LogChannelFrame,
  type LogEntry,
  type StreamLogsRequest,
} from '@cloudless/api';

/** Maximum number of open logs in one channel. A coordinator opens at most 512 per node. */
export const MAX_CHANNEL_LOGS = 640;
/**
 * Bytes of entries that wait for the connection, over all logs. At this size the agent stops
 * reading all logs.
 */
const MAX_WAITING_BYTES = 1024 * 1024;
/**
 * Limits of one message, so that a message does not delay other streams of the coordinator. A
 * single frame may be larger.
 */
const MAX_FRAMES_PER_MESSAGE = 256;
const MAX_BYTES_PER_MESSAGE = 64 * 1024;

export interface LogChannelDeps {
  readonly streamLogs: (request: StreamLogsRequest, signal: AbortSignal) => AsyncIterable<LogEntry>;
  /** Error code and message that the coordinator receives for a failure. */
  readonly toError: (reason: unknown) => { readonly code: number; readonly message: string };
}

/** A log of the channel. */
interface OpenLog {
  readonly stop: AbortController;
  /** Bytes that may still be sent; the last entry may exceed the window, which is then negative. */
  window: number;
  /** Continues reading when the log waits for its window. */
  wake: () => void;
}

/**
 * Many logs in one tunnel. Each log has a window of its own, so a client that stops reading delays
 * no other client. The bytes that wait for the connection are bounded over all logs.
 */
export class LogChannel {
  private readonly logs = new Map<bigint, OpenLog>();
  private readonly waiting: LogChannelFrame[] = [];
  private waitingBytes = 0;
  private ended = false;
  private wakeOutput = (): void => undefined;
  /** Callbacks that resume logs that wait because too many bytes wait for the connection. */
  private readonly paused = new Set<() => void>();

  constructor(private readonly deps: LogChannelDeps) {}

  /**
   * Handles a frame of the coordinator.
   * @throws kind `invalid` for a log id in use and for more than {@link MAX_CHANNEL_LOGS} logs.
   */
  handleFrame({ logId, frame }: LogChannelFrame): void {
    if (this.ended) return;
    if (frame.case === 'open') this.open(logId, frame.value);
    const log = this.logs.get(logId);
    if (log === undefined) return; // the log has ended meanwhile
    if (frame.case === 'close') this.close(logId, log);
    if (frame.case === 'window') {
      log.window += Number(frame.value);
      log.wake();
    }
  }

  /** Ends all logs and {@link readFrames}. */
  end(): void {
    this.ended = true;
    for (const [logId, log] of this.logs) this.close(logId, log);
    this.wakeOutput();
  }

  /**
   * Yields the frames for the coordinator, grouped into messages while the connection is busy. Can
   * be read once; ends with the channel.
   */
  async *readFrames(): AsyncGenerator<readonly LogChannelFrame[]> {
    for (;;) {
      const frames = this.dequeueFrames();
      if (frames.length > 0) {
        yield frames;
        if (this.waitingBytes < MAX_WAITING_BYTES) this.resumePaused();
      } else if (this.ended) return;
      else await new Promise<void>((resolve) => (this.wakeOutput = resolve));
    }
  }

  /**
   * Removes the frames of the next message from the queue: several small frames or one large one.
   */
  private dequeueFrames(): readonly LogChannelFrame[] {
    let bytes = 0;
    let count = 0;
    for (
      ;
      count < this.waiting.length &&
      count < MAX_FRAMES_PER_MESSAGE &&
      bytes < MAX_BYTES_PER_MESSAGE;
      count += 1
    ) {
      const frame = this.waiting[count];
      if (frame !== undefined) bytes += computeCost(frame);
    }
    this.waitingBytes -= bytes;
    return this.waiting.splice(0, count);
  }

  private open(logId: bigint, request: StreamLogsRequest): void {
    if (this.logs.has(logId))
      throw new CloudlessError('invalid', `log_id: ${logId} is open already`);
    if (this.logs.size >= MAX_CHANNEL_LOGS)
      throw new CloudlessError(
        'invalid',
        `open: the channel already has ${MAX_CHANNEL_LOGS} open logs, which is the maximum`,
      );
    const log: OpenLog = { stop: new AbortController(), window: 0, wake: () => undefined };
    this.logs.set(logId, log);
    void this.run(logId, log, request);
  }

  private async run(logId: bigint, log: OpenLog, request: StreamLogsRequest): Promise<void> {
    const { signal } = log.stop;
    try {
      for await (const entry of this.deps.streamLogs(request, signal)) {
        await this.waitForWindow(log);
        if (signal.aborted) return;
        log.window -= computeLogCost(entry);
        this.push(create(LogChannelFrameSchema, { logId, frame: { case: 'entry', value: entry } }));
      }
      if (signal.aborted) return;
      this.push(
        create(LogChannelFrameSchema, {
          logId,
          frame: { case: 'end', value: create(TunnelEndSchema) },
        }),
      );
    } catch (reason) {
      if (signal.aborted) return;
      const value = create(TunnelErrorSchema, this.deps.toError(reason));
      this.push(create(LogChannelFrameSchema, { logId, frame: { case: 'error', value } }));
    } finally {
      if (this.logs.get(logId) === log) this.logs.delete(logId);
    }
  }

  private close(logId: bigint, log: OpenLog): void {
    this.logs.delete(logId);
    log.stop.abort();
    log.wake();
    this.resumePaused();
  }

  /** Resolves when the log has a window and the connection can take more bytes, or when aborted. */
  private async waitForWindow(log: OpenLog): Promise<void> {
    const { signal } = log.stop;
    while (log.window <= 0 && !signal.aborted)
      await new Promise<void>((resolve) => (log.wake = resolve));
    while (this.waitingBytes >= MAX_WAITING_BYTES && !signal.aborted)
      await new Promise<void>((resolve) => this.paused.add(resolve));
  }

  private push(frame: LogChannelFrame): void {
    this.waiting.push(frame);
    this.waitingBytes += computeCost(frame);
    this.wakeOutput();
  }

  private resumePaused(): void {
    for (const resume of this.paused) resume();
    this.paused.clear();
  }
}

function computeCost({ frame }: LogChannelFrame): number {
  return frame.case === 'entry' ? computeLogCost(frame.value) : 0;
}
