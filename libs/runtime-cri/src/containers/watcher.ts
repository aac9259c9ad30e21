import {
  CloudlessError,
  errorFields,
  errorKindOf,
  type Clock,
  type Log,
  type Timer,
} from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { processExists } from '../system/host-processes.js';
import type { ContainerInventory, KnownContainer } from './inventory.js';

/** Interval of the polls. Each poll makes one system call per running container. */
const POLL_MS = 50;
/** Longest interval between refreshes, for changes that no event and no missing process reveals. */
const RELIST_MS = 1_000;
/**
 * Number of polls, 3 s together, at which a container without a main process is read individually.
 * A runtime usually reports the exit within this time; otherwise the periodic refresh detects it.
 */
const MAX_MISSED_POLLS = 60;
/**
 * Largest number of ended containers that are read with one call each. For more containers, one
 * list of all is less work.
 */
const MAX_SINGLE_REFRESHES = 8;

/**
 * Refreshes an inventory while a caller waits for events. Three sources trigger a refresh: events
 * of the container runtime, where it has them; main processes that no longer exist; and a timer.
 * These sources never change the inventory themselves; only the status that the refresh reads does.
 */
export class Watcher {
  private timer: Timer | undefined;
  private stream: AbortController | undefined;
  private isStreamUnsupported = false;
  /** Monotonic time of the newest refresh. */
  private refreshedAtMs = 0;
  /** Number of polls since each main process ended, by process id. */
  private readonly missedPolls = new Map<number, number>();

  constructor(
    private readonly client: CriClient,
    private readonly inventory: ContainerInventory,
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /** Starts watching until no caller waits. Call it each time a caller begins to wait. */
  wake(): void {
    if (this.timer !== undefined || this.client.closed.aborted) return;
    this.refreshedAtMs = this.clock.now();
    this.openStream();
    this.scheduleNextPoll();
  }

  /** Stops watching. */
  close(): void {
    this.timer?.cancel();
    this.timer = undefined;
    this.stream?.abort();
    this.stream = undefined;
  }

  private scheduleNextPoll(): void {
    this.timer = this.clock.setTimer(POLL_MS, () => void this.poll());
  }

  private async poll(): Promise<void> {
    if (!this.inventory.isWatched) return this.close();
    const ended = this.findEndedProcesses();
    if (ended.length > MAX_SINGLE_REFRESHES || this.clock.now() - this.refreshedAtMs >= RELIST_MS)
      await this.refreshAll();
    else await this.failReadersOnError(this.refreshEach(ended));
    if (this.timer !== undefined) this.scheduleNextPoll();
  }

  private async refreshAll(): Promise<void> {
    this.refreshedAtMs = this.clock.now();
    this.openStream(); // the stream ends when the runtime becomes unreachable
    await this.failReadersOnError(this.inventory.refreshAll());
  }

  private async refreshEach(ended: readonly KnownContainer[]): Promise<void> {
    const refreshed = await Promise.all(ended.map((known) => this.inventory.refreshOne(known)));
    // Another program has removed a container.
    if (refreshed.includes(undefined)) await this.inventory.refreshAll();
  }

  /** Fails the waiting callers when the runtime cannot be called. */
  private async failReadersOnError(refresh: Promise<unknown>): Promise<void> {
    try {
      await refresh;
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

  /** Returns the containers whose main process ended at most {@link MAX_MISSED_POLLS} polls ago. */
  private findEndedProcesses(): readonly KnownContainer[] {
    const ended: KnownContainer[] = [];
    const running = new Set<number>();
    for (const known of this.inventory.list()) {
      const { status } = known;
      if (status.pid === undefined) continue;
      running.add(status.pid);
      if (processExists(status.pid)) continue;
      const missed = (this.missedPolls.get(status.pid) ?? 0) + 1;
      this.missedPolls.set(status.pid, missed);
      if (missed <= MAX_MISSED_POLLS) ended.push(known);
    }
    for (const pid of this.missedPolls.keys()) if (!running.has(pid)) this.missedPolls.delete(pid);
    return ended;
  }

  private openStream(): void {
    if (this.isStreamUnsupported || this.stream !== undefined || this.client.closed.aborted) return;
    const stream = (this.stream = new AbortController());
    void this.followEvents(stream.signal).finally(() => {
      if (this.stream === stream) this.stream = undefined;
    });
  }

  /** Refreshes at each event until the stream ends. */
  private async followEvents(signal: AbortSignal): Promise<void> {
    try {
      for await (const _ of this.client.events(signal))
        if (this.inventory.isWatched) await this.refreshAll();
    } catch (reason) {
      this.isStreamUnsupported = errorKindOf(reason) === 'unimplemented';
    }
  }
}
