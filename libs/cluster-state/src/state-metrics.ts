import { DURATION_BUCKETS, errorKindOf, type Clock, type Meter } from '@cloudless/base';
import type { Operation, Revision } from '@cloudless/state-store';

/** Metrics of commits, and of the lag of the view. */
export class StateMetrics {
  private readonly commits;
  private readonly durations;
  private readonly writtenBytes;
  private readonly unsubscribe: () => void;

  /**
   * @param readRevisions - Reads the current revisions of the store and of the view.
   * @param readDecodedCount - Reads the number of records that the view has decoded.
   */
  constructor(
    meter: Meter,
    private readonly clock: Clock,
    readRevisions: () => Promise<{ readonly store: Revision; readonly view: Revision }>,
    readDecodedCount: () => number,
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
    this.writtenBytes = meter.counter({
      name: 'cloudless_state_written_bytes_total',
      help: 'Bytes of the records in transactions that were given to the state store.',
    });
    const decoded = meter.counter({
      name: 'cloudless_state_records_decoded_total',
      help: 'Records that were decoded from the state store: those of the start, and those of other coordinators.',
    });
    let countedRecords = 0;
    this.unsubscribe = meter.onExpose(async () => {
      const decodedCount = readDecodedCount();
      decoded.add(decodedCount - countedRecords);
      countedRecords = decodedCount;
      const { store, view } = await readRevisions();
      revision.set(Number(store));
      lag.set(Math.max(0, Number(store - view)));
    });
  }

  /** Counts the bytes of the records in a transaction. */
  countWrites(operations: readonly Operation[]): void {
    let bytes = 0;
    for (const operation of operations) if ('put' in operation) bytes += operation.value.byteLength;
    this.writtenBytes.add(bytes);
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
