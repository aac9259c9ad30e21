import { CloudlessError } from '@cloudless/base';
import { windowCostOf, type TunnelFrame } from '@cloudless/api';

/** What may be on its way to a command or connection, or wait for it. */
const WINDOW_BYTES = 256 * 1024;
/** Room is told in pieces of at least this size. */
const GRANT_BYTES = WINDOW_BYTES / 8;

/**
 * What the coordinator sends through one tunnel, for the command or connection it is meant for. The
 * tunnel itself is always read, as else its end would not be seen: a window bounds what waits here
 * instead. The first room is granted to who begins to read.
 */
export class TunnelInbox {
  private readonly frames: TunnelFrame[] = [];
  private granted = 0;
  private toGrant = WINDOW_BYTES;
  private reading = false;
  private over = false;
  private wakeReader: (() => void) | undefined;
  private wakeGrants: (() => void) | undefined;

  /** Takes a frame. @throws kind `invalid` for more than was granted. */
  put(frame: TunnelFrame): void {
    if (this.over) return;
    if (this.granted <= 0)
      throw new CloudlessError('invalid', 'frame: more was sent than fits the window');
    this.granted -= windowCostOf(frame);
    this.frames.push(frame);
    this.wakeReader?.();
  }

  /** Nothing more will come, and nobody reads any more. */
  close(): void {
    this.over = true;
    this.frames.length = 0;
    this.wakeReader?.();
    this.wakeGrants?.();
  }

  /** The frames, in order; read once. Ends when closed. */
  async *read(): AsyncGenerator<TunnelFrame> {
    this.reading = true;
    this.wakeGrants?.();
    for (;;) {
      const frame = this.frames.shift();
      if (frame !== undefined) {
        this.toGrant += windowCostOf(frame);
        this.wakeGrants?.();
        yield frame;
      } else if (this.over) return;
      else await new Promise<void>((resolve) => (this.wakeReader = resolve));
    }
  }

  /** How much more may be sent, each time there is room; ends when closed. */
  async *grants(): AsyncGenerator<number> {
    while (!this.over) {
      if (this.reading && this.toGrant >= GRANT_BYTES) {
        const grant = this.toGrant;
        this.toGrant = 0;
        this.granted += grant;
        yield grant;
      } else await new Promise<void>((resolve) => (this.wakeGrants = resolve));
    }
  }
}
