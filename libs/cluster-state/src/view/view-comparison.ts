import { errorFields, errorKindOf, sleep, type Clock, type Log, type Meter } from '@cloudless/base';
import type { StateStore } from '@cloudless/state-store';
import { KEY_PREFIX, RECORD_KINDS, parseViewKey, toKey } from '../records/records.js';
import type { ViewFollower } from './view-follower.js';

/** Interval of the comparisons, milliseconds. One reads the whole store. */
const COMPARE_INTERVAL_MS = 10 * 60_000;
/** Pause after each page of records, milliseconds, so that other work is not delayed. */
const PAGE_PAUSE_MS = 20;

export interface ViewComparisonDeps {
  readonly store: Pick<StateStore, 'range'>;
  readonly follower: ViewFollower;
  readonly clock: Clock;
  readonly log: Log;
  readonly meter: Meter;
}

/**
 * Compares the view with the store from time to time, because a watch may lose changes without an
 * error (etcd 3.4 has such bugs). A view that differs is reported and read anew.
 */
export class ViewComparison {
  private readonly stopping = new AbortController();
  private readonly differences;

  constructor(private readonly deps: ViewComparisonDeps) {
    this.differences = deps.meter.counter({
      name: 'cloudless_state_view_differences_total',
      help: 'Comparisons of the view with the state store that found a difference. The view is then read anew; anything but 0 is a fault of the store.',
    });
    this.differences.add(0);
    void this.run();
  }

  /** Ends the checks. Does not wait for a store that does not answer. */
  close(): void {
    this.stopping.abort();
  }

  private async run(): Promise<void> {
    const { clock, log, follower } = this.deps;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      await sleep(clock, COMPARE_INTERVAL_MS, signal).catch(() => undefined);
      if (signal.aborted || follower.failure !== undefined) return;
      try {
        const example = await this.findDifference();
        if (example === undefined || signal.aborted) continue;
        this.differences.add(1);
        log.error('view differs from the state store, reading a new snapshot', {
          key: example,
          revision: follower.view.revision,
        });
        follower.reload();
      } catch (reason) {
        const level = errorKindOf(reason) === 'compacted' ? 'debug' : 'warn';
        log[level]('view was not compared with the state store', errorFields(reason));
      }
    }
  }

  /** @returns A key whose record differs; undefined when the view shows what the store has. */
  private async findDifference(): Promise<string | undefined> {
    const { store, follower, clock } = this.deps;
    const { view } = follower;
    const { revision } = view;
    const changedSince = new Set<string>();
    let equalCount = 0;
    let after: string | undefined;
    let passed = '';
    const unsubscribe = follower.subscribe((changes) => {
      for (const { kind, id, before } of changes) {
        const key = toKey(kind, id);
        const wasCounted =
          before !== undefined && !changedSince.has(key) && !sortsAfter(key, passed);
        if (wasCounted) equalCount -= 1;
        changedSince.add(key);
      }
    });
    try {
      do {
        const page = await store.range({
          prefix: KEY_PREFIX,
          revision,
          ...(after === undefined ? {} : { after }),
        });
        for (const { key, modRevision } of page.entries) {
          const parsed = parseViewKey(key);
          if (parsed === undefined || changedSince.has(key)) continue;
          if (view.get(parsed.kind, parsed.id)?.revision !== modRevision) return key;
          equalCount += 1;
        }
        passed = page.entries.at(-1)?.key ?? passed;
        after = page.next;
        await sleep(clock, PAGE_PAUSE_MS, this.stopping.signal).catch(() => undefined);
        if (this.stopping.signal.aborted) return undefined;
      } while (after !== undefined);
      return this.findExtraRecord(equalCount, changedSince);
    } finally {
      unsubscribe();
    }
  }

  /**
   * Finds out whether the view shows records that the store does not have: then it has more
   * unchanged records than were found equal.
   */
  private findExtraRecord(
    equalCount: number,
    changedSince: ReadonlySet<string>,
  ): string | undefined {
    let newest: string | undefined;
    let count = 0;
    for (const kind of RECORD_KINDS)
      for (const id of this.deps.follower.view.listIds(kind)) {
        const key = toKey(kind, id);
        if (changedSince.has(key)) continue;
        count += 1;
        newest = key;
      }
    return count > equalCount ? newest : undefined;
  }
}

/** Compares keys as the store sorts them, by the bytes of their UTF-8 text. */
const sortsAfter = (key: string, other: string): boolean =>
  Buffer.compare(Buffer.from(key), Buffer.from(other)) > 0;
