import { timestampMs } from '@bufbuild/protobuf/wkt';
import { WorkQueue, errorFields, errorKindOf, type Clock, type Log, type Random, type WorkResult } from '@cloudless/base';
import { replicaKeyId, type ClusterState } from '@cloudless/cluster-state';

/** What {@link Janitor} works with. */
export interface JanitorDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Older events go first. */
const MAX_EVENTS = 10_000;
/** Results of requests are kept this long for retries. */
const REQUEST_RETENTION_MS = 3_600_000;
/** A lost node's replicas are remembered this long, to be stopped should it return. */
const TOMBSTONE_RETENTION_MS = 30 * 24 * 3_600_000;
const PERIOD_MS = 60_000;
const MAX_DELETES_PER_COMMIT = 90;

/** Removes what has had its time: old events, results of old requests, tombstones. */
export class Janitor {
  private readonly queue: WorkQueue<'sweep'>;

  constructor(private readonly deps: JanitorDeps) {
    this.queue = new WorkQueue({
      clock: deps.clock,
      random: deps.random,
      handle: () => this.sweep(),
      onError: (_key, reason) => deps.log.error('sweep failed', errorFields(reason)),
      backoff: { firstMs: 1_000, maxMs: 60_000, jitter: 0.2 },
    });
    this.queue.wake('sweep');
  }

  close(): Promise<void> {
    return this.queue.stop();
  }

  private async sweep(): Promise<WorkResult> {
    const { state } = this.deps;
    const due = this.due();
    if (due.length === 0) return { kind: 'after', delayMs: PERIOD_MS };
    const transaction = state.transaction();
    for (const { kind, id } of due.slice(0, MAX_DELETES_PER_COMMIT)) transaction.delete(kind, id);
    try {
      await state.commit(transaction);
    } catch (reason) {
      if (errorKindOf(reason) !== 'conflict') throw reason;
      return { kind: 'retry' };
    }
    return { kind: 'again' };
  }

  private due(): readonly { readonly kind: 'event' | 'request' | 'replica'; readonly id: string }[] {
    const view = this.deps.state.view();
    const now = this.deps.clock.wallTime();
    const events = view.events();
    const old = events.slice(0, Math.max(0, events.length - MAX_EVENTS)).map(({ id }) => ({ kind: 'event' as const, id }));
    const requests = [...view.requests()]
      .filter(([, { value }]) => value.at === undefined || now - timestampMs(value.at) > REQUEST_RETENTION_MS)
      .map(([id]) => ({ kind: 'request' as const, id }));
    const tombstones = [...view.replicas()]
      .filter(({ value }) => value.lost && value.lostAt !== undefined && now - timestampMs(value.lostAt) > TOMBSTONE_RETENTION_MS)
      .map(({ value }) => ({ kind: 'replica' as const, id: replicaKeyId(value.uid, value.sequence) }));
    return [...old, ...requests, ...tombstones];
  }
}
