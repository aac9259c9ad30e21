import type { Clock, Log, Timer } from '@cloudless/base';

/** For so long no write may have been refused, before a disk counts as no longer full. */
const QUIET_MS = 5_000;

/** Needs of {@link RoomWatch}. */
export interface RoomWatchOptions {
  readonly clock: Clock;
  readonly log: Log;
  /**
   * Writes a little. When nobody else writes, nothing else would find out that there is room again.
   */
  readonly probe: () => Promise<unknown>;
  readonly onRoom: (hasRoom: boolean) => void;
}

/**
 * Knows whether the disk is full, and tells at each change, once. On a disk that is almost full a
 * small write goes through between two large ones that do not: so it is full until nothing was
 * refused for a while.
 */
export class RoomWatch {
  private isFull = false;
  private refusedLately = false;
  private timer: Timer | undefined;
  private stopped = false;

  constructor(private readonly options: RoomWatchOptions) {}

  /** A write was refused because there was no room for it. */
  refused(): void {
    this.refusedLately = true;
    if (this.isFull || this.stopped) return;
    this.isFull = true;
    this.options.log.warn('disk full: writes are refused until there is room, reads go on');
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
    // a refusal is told to us like any other
    if (!this.refusedLately) await this.options.probe().catch(() => undefined);
    if (this.stopped) return;
    if (this.refusedLately) return this.lookLater();
    this.isFull = false;
    this.options.log.info('there is room again: writes go on');
    this.options.onRoom(true);
  }
}
