import { CloudlessError } from '@cloudless/base';
import { computeWindowCost, type TunnelFrame } from '@cloudless/api';

/**
 * Flow-control window: bytes of input that may be on their way to a command or connection, or wait
 * in the inbox until the command or connection reads them.
 */
const WINDOW_BYTES = 256 * 1024;
/** Minimum size of a window update, so that not every frame causes an update. */
const GRANT_BYTES = WINDOW_BYTES / 8;

/**
 * Buffers the frames that the coordinator sends through one tunnel for a command or connection. The
 * agent always reads the tunnel, because otherwise it would not notice the end of the tunnel; a
 * flow-control window bounds the buffered bytes. The first window is granted when reading begins.
 */
export class TunnelInbox {
  private readonly frames: TunnelFrame[] = [];
  /** Bytes that the coordinator may still send. */
  private granted = 0;
  /** Bytes that the next window update grants. */
  private pendingGrant = WINDOW_BYTES;
  private reading = false;
  private closed = false;
  private wakeReader: (() => void) | undefined;
  private wakeGrants: (() => void) | undefined;

  /**
   * Adds a frame; has no effect after {@link close}. The last frame may exceed the granted window.
   * @throws kind `invalid` when the granted window is used up.
   */
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

  /** Yields the frames in order. Can be read once; ends when the inbox is closed. */
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

  /** Yields window updates in bytes, whenever there is room; ends when the inbox is closed. */
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
