import { timestampMs } from '@bufbuild/protobuf/wkt';
import { Event_Category as Category, type Event } from '@cloudless/api';
import {
  WorkQueue,
  logFailure,
  errorKindOf,
  type Clock,
  noMeter,
  type Log,
  type Meter,
  type Random,
  type WorkResult,
} from '@cloudless/base';
import { LeadershipLostError, RestoredStateError, replicaKeyId, type ClusterState } from '@cloudless/cluster-state';

/** What {@link Janitor} works with. */
export interface JanitorDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
  /** How long audit events are kept, milliseconds; default {@link AUDIT_RETENTION_MS}. */
  readonly auditRetentionMs?: number;
}

/** Older events go first; audit events do not count. */
const MAX_EVENTS = 10_000;
/** Who did what is asked for long after what came of it is forgotten. */
const AUDIT_RETENTION_MS = 30 * 24 * 3_600_000;
/** Some 25 MB of memory; a caller who makes more in a shorter time cannot fill the disk. */
const MAX_AUDIT_EVENTS = 50_000;
/** Results of requests are kept this long for retries. */
const REQUEST_RETENTION_MS = 3_600_000;
/** A lost node's replicas are remembered this long, to be stopped should it return. */
const TOMBSTONE_RETENTION_MS = 30 * 24 * 3_600_000;
const PERIOD_MS = 60_000;
const MAX_DELETES_PER_COMMIT = 90;

/** Removes what has had its time: old events, results of old requests, plans, tombstones. */
export class Janitor {
  private readonly queue: WorkQueue<'sweep'>;

  constructor(private readonly deps: JanitorDeps) {
    this.queue = new WorkQueue({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'janitor' },
      handle: () => this.sweep(),
      onError: (_key, reason) => logFailure(deps.log, 'sweep failed', reason),
      backoff: { firstMs: 1_000, maxMs: 60_000, jitter: 0.2 },
    });
    this.queue.wake('sweep');
  }

  close(): Promise<void> {
    return this.queue.stop();
  }

  private async sweep(): Promise<WorkResult> {
    const { state } = this.deps;
    const due = state.restored === undefined ? this.due() : [];
    if (due.length === 0) return { kind: 'after', delayMs: PERIOD_MS };
    const transaction = state.transaction();
    for (const { kind, id } of due.slice(0, MAX_DELETES_PER_COMMIT)) transaction.delete(kind, id);
    try {
      await state.commit(transaction);
    } catch (reason) {
      if (reason instanceof LeadershipLostError) return { kind: 'done' };
      if (reason instanceof RestoredStateError) return { kind: 'after', delayMs: PERIOD_MS };
      if (errorKindOf(reason) !== 'conflict') throw reason;
      return { kind: 'again' };
    }
    return { kind: 'again' };
  }

  private dueEvents(now: number): readonly string[] {
    const { state, auditRetentionMs = AUDIT_RETENTION_MS } = this.deps;
    const isAudit = ({ category }: Event): boolean => category === Category.AUDIT;
    const events = state.view().events();
    const audit = events.filter(isAudit);
    const others = events.filter((event) => !isAudit(event));
    const tooMany = Math.max(0, audit.length - MAX_AUDIT_EVENTS);
    const isDue = ({ time }: Event, index: number): boolean =>
      index < tooMany || time === undefined || now - timestampMs(time) > auditRetentionMs;
    return [...others.slice(0, Math.max(0, others.length - MAX_EVENTS)), ...audit.filter(isDue)].map(({ id }) => id);
  }

  private due(): readonly { readonly kind: 'event' | 'request' | 'plan' | 'replica'; readonly id: string }[] {
    const view = this.deps.state.view();
    const now = this.deps.clock.wallTime();
    const old = this.dueEvents(now).map((id) => ({ kind: 'event' as const, id }));
    const requests = [...view.requests()]
      .filter(([, { value }]) => value.at === undefined || now - timestampMs(value.at) > REQUEST_RETENTION_MS)
      .map(([id]) => ({ kind: 'request' as const, id }));
    const plans = [...view.plans()]
      .filter(([, { value }]) => value.plan?.expiresAt === undefined || now >= timestampMs(value.plan.expiresAt))
      .map(([id]) => ({ kind: 'plan' as const, id }));
    const tombstones = [...view.replicas()]
      .filter(({ value }) => value.lost && value.lostAt !== undefined && now - timestampMs(value.lostAt) > TOMBSTONE_RETENTION_MS)
      .map(({ value }) => ({ kind: 'replica' as const, id: replicaKeyId(value.uid, value.sequence) }));
    return [...old, ...requests, ...plans, ...tombstones];
  }
}
