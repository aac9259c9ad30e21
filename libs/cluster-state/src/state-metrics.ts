import { DURATION_BUCKETS, errorKindOf, type Clock, type Meter } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';

/** Metrics of commits, and of the lag of the view. */
export class StateMetrics {
  private readonly commits;
  private readonly durations;
  private readonly unsubscribe: () => void;

  /** @param readRevisions - Reads the current revisions of the store and of the view. */
  constructor(
    meter: Meter,
    private readonly clock: Clock,
    readRevisions: () => Promise<{ readonly store: Revision; readonly view: Revision }>,
  ) {
    this.commits = meter.counter({
      name: 'cloudless_state_commits_total',
      help: 'Transactions given to the state store, by result: ok, conflict, or the kind of the error.',
      labels: ['result'],
    });
    this.durations = meter.histogram({
      name: 'cloudless_state_commit_duration_seconds',
      help: 'From handing a transaction to the state store until it is flushed and the view shows it.',
      buckets: DURATION_BUCKETS,
    });
    const lag = meter.gauge({
      name: 'cloudless_state_view_lag_revisions',
      help: 'Revisions that the store has and the view does not show yet.',
    });
    const revision = meter.gauge({
      name: 'cloudless_state_revision',
      help: 'Newest revision of the state store.',
    });
    this.unsubscribe = meter.onExpose(async () => {
      const { store, view } = await readRevisions();
      revision.set(Number(store));
      lag.set(Math.max(0, Number(store - view)));
    });
  }

  /** Runs one commit, counts its result and observes its duration. */
  async measureCommit<Result>(commit: () => Promise<Result>): Promise<Result> {
    const startedAt = this.clock.now();
    try {
      const result = await commit();
      this.commits.add(1, { result: 'ok' });
      return result;
    } catch (reason) {
      this.commits.add(1, { result: errorKindOf(reason) });
      throw reason;
    } finally {
      this.durations.observe((this.clock.now() - startedAt) / 1_000);
    }
  }

  /** Stops the updates of the gauges. */
  close(): void {
    this.unsubscribe();
  }
}
