import {
  CloudlessError,
  errorFields,
  errorKindOf,
  type Clock,
  type Log,
  type Timer,
} from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import type { Inventory, Known } from './inventory.js';
import { isThere } from '../system/host-processes.js';

/** Interval in which the main processes are checked, with one system call each. */
const GLANCE_MS = 50;
/** Longest interval between refreshes, for changes that nothing else reveals. */
const RELIST_MS = 1_000;
/**
 * Polls within which a runtime notices the end of a process; after that the periodic refresh must
 * detect it.
 */
const NOTICE_GLANCES = 60;
/**
 * When more containers than this have ended, one list of all is less work than one call for each.
 */
const ASKED_ONE_BY_ONE = 8;

/**
 * Refreshes an inventory while a caller waits for events. Three sources trigger a refresh: events
 * of runtimes that have them, main processes that are gone, and time. Only the refresh decides what
 * happened.
 */
export class Watcher {
  private timer: Timer | undefined;
  private stream: AbortController | undefined;
  private streamMissing = false;
  private lookedAt = 0;
  private readonly missedGlances = new Map<number, number>();

  constructor(
    private readonly client: CriClient,
    private readonly inventory: Inventory,
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /** Starts watching. Call it when a caller begins to wait. */
  wake(): void {
    if (this.timer !== undefined || this.client.closed.aborted) return;
    this.lookedAt = this.clock.now();
    this.openStream();
    this.schedule();
  }

  close(): void {
    this.timer?.cancel();
    this.timer = undefined;
    this.stream?.abort();
    this.stream = undefined;
  }

  private schedule(): void {
    this.timer = this.clock.setTimer(GLANCE_MS, () => void this.glance());
  }

  private async glance(): Promise<void> {
    if (!this.inventory.isWatched) return this.close();
    const ended = this.endedProcesses();
    if (ended.length > ASKED_ONE_BY_ONE || this.clock.now() - this.lookedAt >= RELIST_MS)
      await this.look();
    else await this.orFail(this.askFor(ended));
    if (this.timer !== undefined) this.schedule();
  }

  private async look(): Promise<void> {
    this.lookedAt = this.clock.now();
    this.openStream(); // it ended when the runtime was unreachable
    await this.orFail(this.inventory.look());
  }

  private async askFor(ended: readonly Known[]): Promise<void> {
    const now = await Promise.all(ended.map((known) => this.inventory.refresh(known)));
    if (now.includes(undefined)) await this.inventory.look(); // another program removed it
  }

  /** Fails the waiting callers when the runtime cannot be called. */
  private async orFail(asked: Promise<unknown>): Promise<void> {
    try {
      await asked;
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable')
        this.log.warn('containers not listed', errorFields(reason));
      this.inventory.fail(
        reason instanceof CloudlessError
          ? reason
          : new CloudlessError('unavailable', 'containers could not be listed', { cause: reason }),
      );
    }
  }

  private endedProcesses(): readonly Known[] {
    const ended: Known[] = [];
    const running = new Set<number>();
    for (const known of this.inventory.all()) {
      const { status } = known;
      if (status.pid === undefined) continue;
      running.add(status.pid);
      if (isThere(status.pid)) continue;
      const missed = (this.missedGlances.get(status.pid) ?? 0) + 1;
      this.missedGlances.set(status.pid, missed);
      if (missed <= NOTICE_GLANCES) ended.push(known);
    }
    for (const pid of this.missedGlances.keys())
      if (!running.has(pid)) this.missedGlances.delete(pid);
    return ended;
  }

  private openStream(): void {
    if (this.streamMissing || this.stream !== undefined || this.client.closed.aborted) return;
    const stream = (this.stream = new AbortController());
    void this.follow(stream.signal).finally(() => {
      if (this.stream === stream) this.stream = undefined;
    });
  }

  private async follow(signal: AbortSignal): Promise<void> {
    try {
      for await (const _ of this.client.events(signal))
        if (this.inventory.isWatched) await this.look();
    } catch (reason) {
      this.streamMissing = errorKindOf(reason) === 'unimplemented';
    }
  }
}
