import type { Clock, Log, Timer } from '@cloudless/base';

/** A disk counts as full until no write was refused for this time. */
const QUIET_MS = 5_000;

export interface RoomWatchOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Writes a small record, to find out without other writes whether the disk has space again. */
  readonly probe: () => Promise<unknown>;
  readonly onRoom: (hasRoom: boolean) => void;
}

/**
 * Monitors whether the disk is full and reports each change once. On an almost full disk a small
 * write can succeed between two large ones that fail, so the disk counts as full until no write was
 * refused for a while.
 */
export class RoomWatch {
  private isFull = false;
  private refusedLately = false;
  private timer: Timer | undefined;
  private stopped = false;

  constructor(private readonly options: RoomWatchOptions) {}

  /** Records that a write failed because the disk is full. */
  refused(): void {
    this.refusedLately = true;
    if (this.isFull || this.stopped) return;
    this.isFull = true;
    this.options.log.warn('disk full: writes are refused until space is free, reads continue');
    this.options.onRoom(false);
    this.lookLater();
  }

  stop(): void {
    this.stopped = true;
    this.timer?.cancel();
  }

  private lookLater(): void {
    this.refusedLately = false;
    this.timer = this.options.clock.setTimer(QUIET_MS, () => void this.look());
  }

  private async look(): Promise<void> {
    // a refused probe also calls recordRefusal
    if (!this.refusedLately) await this.options.probe().catch(() => undefined);
    if (this.stopped) return;
    if (this.refusedLately) return this.lookLater();
    this.isFull = false;
    this.options.log.info('disk has free space again: writes continue');
    this.options.onRoom(true);
  }
}
