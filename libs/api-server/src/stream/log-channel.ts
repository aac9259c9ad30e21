import { create } from '@bufbuild/protobuf';
import {
  LogChannelFrameSchema,
  LogChannelFramesSchema,
  LogChannelSchema,
  TunnelEndSchema,
  TunnelFrameSchema,
  fromTunnelError,
  computeLogCost,
  type LogChannelFrame,
  type LogEntry,
  type StreamLogsRequest,
  type TunnelFrame,
} from '@cloudless/api';
import { CloudlessError, type StopSignal } from '@cloudless/base';
import type { TunnelOpener } from './tunnel-hub.js';

/**
 * Window of one log: bytes that may be in flight or wait for the reader. The last entry may exceed
 * the window.
 */
const WINDOW_BYTES = 128 * 1024;
/** Bytes after which the window is extended again, so that not every entry causes a frame. */
const GRANT_BYTES = WINDOW_BYTES / 4;

/** The state of one open log. */
interface Reader {
  readonly entries: LogEntry[];
  /** `complete`, or the error with which the log has ended; undefined while the log is open. */
  ended: { readonly reason: unknown } | 'complete' | undefined;
  wake: () => void;
}

/**
 * Reads several logs of one node through one tunnel, which the constructor opens. The channel ends
 * when its last log ends or the tunnel breaks; later logs need a new channel.
 */
export class LogChannel {
  private readonly readers = new Map<bigint, Reader>();
  private readonly outgoing: LogChannelFrame[] = [];
  private wakeSender = (): void => undefined;
  private nextId = 1n;
  private readonly stopping = new AbortController();

  /** @param onEnd - Called once, when the channel accepts no more logs. */
  constructor(
    private readonly nodeId: string,
    tunnels: TunnelOpener,
    private readonly onEnd: () => void,
  ) {
    void this.run(tunnels);
  }

  /**
   * Streams the entries of one log. Leaving the loop, or aborting the signal, closes the log on the
   * node.
   * @throws the error that the agent reports; kind `unavailable` when the tunnel breaks.
   */
  async *read(request: StreamLogsRequest, signal: StopSignal): AsyncGenerator<LogEntry> {
    const id = this.nextId++;
    const reader: Reader = { entries: [], ended: undefined, wake: () => undefined };
    const onAbort = (): void =>
      this.removeReader(
        id,
        reader,
        new CloudlessError('unavailable', 'the client has disconnected'),
      );
    this.readers.set(id, reader);
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      this.send(id, { case: 'open', value: request });
      this.send(id, { case: 'window', value: BigInt(WINDOW_BYTES) });
      if (signal.aborted) onAbort();
      let readBytes = 0;
      for (;;) {
        const entry = reader.entries.shift();
        if (entry !== undefined) {
          readBytes += computeLogCost(entry);
          yield entry;
          if (readBytes < GRANT_BYTES || reader.ended !== undefined) continue;
          this.send(id, { case: 'window', value: BigInt(readBytes) });
          readBytes = 0;
        } else if (reader.ended === 'complete') return;
        else if (reader.ended !== undefined) throw reader.ended.reason;
        else await new Promise<void>((resolve) => (reader.wake = resolve));
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
      this.removeReader(id, reader, undefined);
    }
  }

  private async run(tunnels: TunnelOpener): Promise<void> {
    const target = { case: 'logChannel', value: create(LogChannelSchema) } as const;
    let reason: unknown = new CloudlessError(
      'STREAM_INTERRUPTED',
      `the stream from node "${this.nodeId}" was interrupted`,
    );
    try {
      for await (const { frame } of tunnels.open(
        this.nodeId,
        target,
        this.stopping.signal,
        this.streamInput(),
      ))
        if (frame.case === 'logChannel')
          for (const logFrame of frame.value.frames) this.handleFrame(logFrame);
    } catch (failure) {
      reason = failure;
    }
    this.onEnd();
    this.stopping.abort();
    this.wakeSender();
    for (const reader of this.readers.values()) endReader(reader, { reason });
    this.readers.clear();
  }

  private handleFrame({ logId, frame }: LogChannelFrame): void {
    const reader = this.readers.get(logId);
    if (reader === undefined) return; // The reader was removed.
    if (frame.case === 'entry') {
      reader.entries.push(frame.value);
      reader.wake();
      return;
    }
    this.readers.delete(logId);
    if (frame.case !== 'error') endReader(reader, 'complete');
    else endReader(reader, { reason: fromTunnelError(frame.value) });
  }

  /**
   * Removes a reader and closes its log on the node. The tunnel ends with the last reader.
   * @param reason - Error for the reader; undefined when it has left.
   */
  private removeReader(id: bigint, reader: Reader, reason: unknown): void {
    if (this.readers.delete(id)) this.send(id, { case: 'close', value: create(TunnelEndSchema) });
    if (reason !== undefined) {
      reader.entries.length = 0;
      endReader(reader, { reason });
    }
    if (this.readers.size > 0 || this.stopping.signal.aborted) return;
    this.onEnd();
    this.stopping.abort();
  }

  private send(logId: bigint, frame: LogChannelFrame['frame']): void {
    this.outgoing.push(create(LogChannelFrameSchema, { logId, frame }));
    this.wakeSender();
  }

  private async *streamInput(): AsyncGenerator<TunnelFrame> {
    while (!this.stopping.signal.aborted) {
      const frame = this.outgoing.shift();
      const value =
        frame === undefined ? undefined : create(LogChannelFramesSchema, { frames: [frame] });
      if (value !== undefined)
        yield create(TunnelFrameSchema, { frame: { case: 'logChannel', value } });
      else await new Promise<void>((resolve) => (this.wakeSender = resolve));
    }
  }
}

function endReader(reader: Reader, end: NonNullable<Reader['ended']>): void {
  reader.ended ??= end;
  reader.wake();
}
