import { CloudlessError } from '@cloudless/base';
import { computeWindowCost, type TunnelFrame } from '@cloudless/api';

/**
 * Flow-control window: bytes that may be on their way to a command or connection, or wait for it.
 */
const WINDOW_BYTES = 256 * 1024;
/** Minimum size of a window update. */
const GRANT_BYTES = WINDOW_BYTES / 8;

/**
 * Buffers the frames that the coordinator sends through one tunnel for a command or connection. The
 * tunnel itself is always read, as otherwise its end would not be noticed; a flow-control window
 * bounds the buffered bytes. The first window is granted when reading begins.
 */
export class TunnelInbox {
  private readonly frames: TunnelFrame[] = [];
  private granted = 0;
  private pendingGrant = WINDOW_BYTES;
  private reading = false;
  private closed = false;
  private wakeReader: (() => void) | undefined;
  private wakeGrants: (() => void) | undefined;

  /** Adds a frame. @throws kind `invalid` for more bytes than were granted. */
  put(frame: TunnelFrame): void {
    if (this.closed) return;
    if (this.granted <= 0)
      throw new CloudlessError('invalid', 'frame: exceeds the flow-control window');
    this.granted -= computeWindowCost(frame);
    this.frames.push(frame);
    this.wakeReader?.();
  }

  /** Drops buffered frames and ends `read` and `grants`. */
  close(): void {
    this.closed = true;
    this.frames.length = 0;
    this.wakeReader?.();
    this.wakeGrants?.();
  }

  /** The frames in order. Can be read once; ends when closed. */
  async *read(): AsyncGenerator<TunnelFrame> {
    this.reading = true;
    this.wakeGrants?.();
    for (;;) {
      const frame = this.frames.shift();
      if (frame !== undefined) {
        this.pendingGrant += computeWindowCost(frame);
        this.wakeGrants?.();
        yield frame;
      } else if (this.closed) return;
      else await new Promise<void>((resolve) => (this.wakeReader = resolve));
    }
  }

  /** Window updates in bytes, whenever there is room; ends when closed. */
  async *grants(): AsyncGenerator<number> {
    while (!this.closed) {
      if (this.reading && this.pendingGrant >= GRANT_BYTES) {
        const grant = this.pendingGrant;
        this.pendingGrant = 0;
        this.granted += grant;
        yield grant;
      } else await new Promise<void>((resolve) => (this.wakeGrants = resolve));
    }
  }
}
