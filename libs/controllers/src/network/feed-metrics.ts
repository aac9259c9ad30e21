import type { Meter } from '@cloudless/base';

/** Numbers for operators and tests. */
export interface FeedCounts {
  readonly readers: number;
  /** Readers whose proxy has not applied the newest update yet. */
  readonly readersBehind: number;
  /** Leaving replicas that some proxy may still choose for new connections. */
  readonly waitingRemovals: number;
  /** Entries that were derived from records, changed or not. */
  readonly derivedEntries: number;
  /** Updates that were encoded for all readers together. */
  readonly encodedUpdates: number;
  readonly encodedBytes: number;
  /** Times that everything was encoded. */
  readonly encodedSnapshots: number;
  /** Bytes that were given to readers. */
  readonly sentBytes: number;
  /** Times that a reader received everything at the start. */
  readonly startedAnew: number;
  /** Times that a reader received everything because it was too slow. */
  readonly resynchronised: number;
}

/**
 * Publishes the counts of a feed, which are read at each scrape.
 * @returns A function that ends the publication; no stream is shown from then on.
 */
export function publishFeedMetrics(meter: Meter, readCounts: () => FeedCounts): () => void {
  const name = (rest: string): string => `cloudless_network_feed_${rest}`;
  const streams = meter.gauge({
    name: name('streams'),
    help: 'Network proxies that receive services and endpoints from this coordinator.',
  });
  const streamsBehind = meter.gauge({
    name: name('streams_behind'),
    help: 'Network proxies that have not reported yet that they applied the newest update.',
  });
  const removalsWaiting = meter.gauge({
    name: name('removals_waiting'),
    help: 'Stopping replicas that a network proxy may still choose for new connections.',
  });
  const updates = meter.counter({
    name: name('updates_total'),
    help: 'Updates of services and endpoints, each encoded once for all network proxies.',
  });
  const sentBytes = meter.counter({
    name: name('sent_bytes_total'),
    help: 'Bytes of updates that were sent to network proxies.',
  });
  const resets = meter.counter({
    name: name('resets_total'),
    help: 'Times that everything was sent to a network proxy, by cause: start of its stream, or too slow.',
    labels: ['cause'],
  });
  const published = { encodedUpdates: 0, sentBytes: 0, startedAnew: 0, resynchronised: 0 };
  const publish = (): void => {
    const counts = readCounts();
    const take = (key: keyof typeof published): number => {
      const added = counts[key] - published[key];
      published[key] = counts[key];
      return added;
    };
    streams.set(counts.readers);
    streamsBehind.set(counts.readersBehind);
    removalsWaiting.set(counts.waitingRemovals);
    updates.add(take('encodedUpdates'));
    sentBytes.add(take('sentBytes'));
    resets.add(take('startedAnew'), { cause: 'start' });
    resets.add(take('resynchronised'), { cause: 'slow' });
  };
  const unsubscribe = meter.onExpose(publish);
  return () => {
    unsubscribe();
    publish();
    for (const gauge of [streams, streamsBehind, removalsWaiting]) gauge.set(0);
  };
}
