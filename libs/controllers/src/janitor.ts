import { clone, create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { Event } from '@cloudless/api';
import { RemovedEventsRecordSchema } from '@cloudless/api/store';
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
import {
  REMOVED_EVENTS_KEY,
  toReplicaKeyId,
  type ClusterState,
  type RecordChange,
  type RecordKind,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { isFinalRefusal } from './common/commit.js';
import { listEndedCredentials } from './identity/ended-credentials.js';
import { listEndedNetworkRecords } from './network/ended-network-records.js';
import {
  DEFAULT_RETENTION,
  isAudit,
  planRemovals,
  toShare,
  type RemovableRecord,
  type RetentionLimits,
} from './retention.js';

export interface JanitorDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
  /** Overrides of {@link DEFAULT_RETENTION}. */
  readonly retention?: Partial<RetentionLimits>;
}

/** Milliseconds for which results of requests are kept for retries of the clients. */
const REQUEST_RETENTION_MS = 3_600_000;
/**
 * Milliseconds for which a tombstone is kept, so that the replica is stopped when its node returns:
 * 30 days.
 */
const TOMBSTONE_RETENTION_MS = 30 * 24 * 3_600_000;
/** Milliseconds between two regular sweeps. */
const PERIOD_MS = 60_000;
/**
 * Most deletions in one commit. Leaves room for the record of removed events in the 100 writes of a
 * transaction.
 */
const MAX_DELETES_PER_COMMIT = 90;
/**
 * Share of the byte limit by which a group of records may exceed its limit before an early sweep.
 * Above 0, because each sweep reads all records.
 */
const EARLY_SWEEP_SHARE = 1 / 8;

/**
 * A group of records with a byte limit of its own. `events` are the events other than audit
 * records.
 */
type RecordGroup = 'events' | 'audit' | 'requests';

/**
 * A pass: `sweep` looks at all kinds of records, the name of a group only at that group. While
 * thousands of replicas are created, their events exceed the limit many times a second, and a look
 * at every replica for each of them would cost more than the events.
 */
type Pass = 'sweep' | RecordGroup;

/** A record to delete. */
interface DueRecord {
  readonly kind: RecordKind;
  readonly id: string;
  /** The event, when the record is one. */
  readonly event?: Event;
  /** The record as it was read; the deletion requires it to be unchanged. */
  readonly unchangedSince?: Stored<unknown>;
}

/**
 * Deletes events, audit records, results of requests, plans, tombstones, ended tokens and
 * credentials, virtual addresses whose hour is over, and endpoints of deleted services. Sweeps
 * every minute, and early when a group exceeds its byte limit by an eighth.
 */
export class Janitor {
  private readonly queue: WorkQueue<Pass>;
  private readonly limits: RetentionLimits;
  private readonly unsubscribe: () => void;
  private isClosed = false;
  /** Bytes of the kept records of each group. */
  private readonly keptBytes: Record<RecordGroup, number> = { events: 0, audit: 0, requests: 0 };

  constructor(private readonly deps: JanitorDeps) {
    this.limits = { ...DEFAULT_RETENTION, ...deps.retention };
    this.queue = new WorkQueue({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'janitor' },
      handle: (pass) => this.sweep(pass),
      onError: (pass, reason) => logFailure(deps.log, 'sweep failed', reason, { pass }),
      backoff: { firstMs: 1_000, maxMs: 60_000, jitter: 0.2 },
    });
    this.unsubscribe = deps.state.subscribe((changes) => this.watchGrowth(changes));
    this.queue.wake('sweep');
  }

  close(): Promise<void> {
    this.isClosed = true;
    this.unsubscribe();
    return this.queue.stop();
  }

  /**
   * Adds the bytes of new records, and wakes a group when it exceeds its limit by an eighth.
   * Deletions are not subtracted here: each sweep sets the bytes that stay.
   */
  private watchGrowth(changes: readonly RecordChange[]): void {
    const view = this.deps.state.view();
    for (const { kind, id, before, after } of changes) {
      if (before !== undefined || after === undefined) continue;
      if (kind === 'event')
        this.addBytes(isAudit(after) ? 'audit' : 'events', view.event(id)?.bytes);
      else if (kind === 'request') this.addBytes('requests', view.request(id)?.bytes);
    }
  }

  private addBytes(group: RecordGroup, bytes = 0): void {
    const { eventBytes, auditBytes, requestBytes } = this.limits;
    const limit = { events: eventBytes, audit: auditBytes, requests: requestBytes }[group];
    const before = this.keptBytes[group];
    this.keptBytes[group] += bytes;
    const earlyBytes = limit * (1 + EARLY_SWEEP_SHARE);
    if (before <= earlyBytes && this.keptBytes[group] > earlyBytes) this.queue.wake(group);
  }

  private async sweep(pass: Pass): Promise<WorkResult> {
    const { state } = this.deps;
    const isRegular = pass === 'sweep';
    const end: WorkResult = isRegular ? { kind: 'after', delayMs: PERIOD_MS } : { kind: 'done' };
    if (state.storeRolledBack !== undefined) return end;
    const due = isRegular ? this.findDue() : this.findDueOf(pass, this.deps.clock.wallTime());
    for (let from = 0; from < due.length && !this.isClosed; from += MAX_DELETES_PER_COMMIT) {
      const transaction = state.transaction();
      putDeletions(state, transaction, due.slice(from, from + MAX_DELETES_PER_COMMIT));
      try {
        await state.commit(transaction);
      } catch (reason) {
        if (isFinalRefusal(reason)) return end;
        if (errorKindOf(reason) !== 'conflict') throw reason;
        return { kind: 'retry' };
      }
    }
    return end;
  }

  private findDue(): readonly DueRecord[] {
    const view = this.deps.state.view();
    const nowMs = this.deps.clock.wallTime();
    const plans = [...view.plans()]
      .filter(
        ([, { value }]) =>
          value.plan?.expiresAt === undefined || nowMs >= timestampMs(value.plan.expiresAt),
      )
      .map(([id]): DueRecord => ({ kind: 'plan', id }));
    const tombstones: DueRecord[] = [];
    for (const read of view.lostReplicas()) {
      const { lostAt, uid, sequence } = read.value;
      if (lostAt === undefined) continue;
      if (nowMs - timestampMs(lostAt) <= TOMBSTONE_RETENTION_MS) continue;
      const id = toReplicaKeyId(uid, sequence);
      tombstones.push({ kind: 'replica', id, unchangedSince: read });
    }
    return [
      ...tombstones,
      ...plans,
      ...listEndedCredentials(view, nowMs),
      ...listEndedNetworkRecords(view, nowMs),
      ...(['requests', 'events', 'audit'] as const).flatMap((group) =>
        this.findDueOf(group, nowMs),
      ),
    ];
  }

  private findDueOf(group: RecordGroup, nowMs: number): readonly DueRecord[] {
    return group === 'requests' ? this.findDueRequests(nowMs) : this.findDueEvents(group, nowMs);
  }

  private findDueRequests(nowMs: number): readonly DueRecord[] {
    const records = [...this.deps.state.view().requests()]
      .map(([id, { value, bytes = 0 }]) => ({
        id,
        share: '',
        bytes,
        atMs: value.at === undefined ? undefined : timestampMs(value.at),
      }))
      .sort((a, b) => (a.atMs ?? 0) - (b.atMs ?? 0));
    const limits = { maxMs: REQUEST_RETENTION_MS, maxBytes: this.limits.requestBytes };
    return this.planRemoval('requests', records, limits, nowMs).map(({ id }) => ({
      kind: 'request',
      id,
    }));
  }

  private findDueEvents(group: 'events' | 'audit', nowMs: number): readonly DueRecord[] {
    const { eventMs, eventBytes, auditMs, auditBytes } = this.limits;
    const view = this.deps.state.view();
    const records: (RemovableRecord & { readonly event: Event })[] = [];
    for (const event of view.events()) {
      if (isAudit(event) !== (group === 'audit')) continue;
      const { id, time } = event;
      const atMs = time === undefined ? undefined : timestampMs(time);
      records.push({ id, event, share: toShare(event), bytes: view.event(id)?.bytes ?? 0, atMs });
    }
    const limits =
      group === 'audit'
        ? { maxMs: auditMs, maxBytes: auditBytes }
        : { maxMs: eventMs, maxBytes: eventBytes };
    return this.planRemoval(group, records, limits, nowMs).map(({ id, event }) => ({
      kind: 'event',
      id,
      event,
    }));
  }

  /** Plans the deletions of one group, and records the bytes of the records that stay. */
  private planRemoval<Record extends RemovableRecord>(
    group: RecordGroup,
    records: readonly Record[],
    limits: Parameters<typeof planRemovals>[1],
    nowMs: number,
  ): readonly Record[] {
    const removed = planRemovals(records, limits, nowMs);
    const sumBytes = (counted: readonly RemovableRecord[]): number =>
      counted.reduce((sum, { bytes }) => sum + bytes, 0);
    this.keptBytes[group] = sumBytes(records) - sumBytes(removed);
    return removed;
  }
}

/**
 * Adds the deletions to a transaction, and updates the record of the newest removed event of each
 * category.
 */
function putDeletions(
  state: ClusterState,
  transaction: Transaction,
  due: readonly DueRecord[],
): void {
  const before = state.view().removedEvents();
  const removed =
    before === undefined
      ? create(RemovedEventsRecordSchema)
      : clone(RemovedEventsRecordSchema, before.value);
  let isChanged = false;
  for (const { kind, id, event, unchangedSince } of due) {
    transaction.delete(kind, id);
    if (unchangedSince !== undefined) transaction.require(kind, id, unchangedSince);
    if (event === undefined || id <= (removed.newestByCategory[event.category] ?? '')) continue;
    removed.newestByCategory[event.category] = id;
    isChanged = true;
  }
  if (isChanged) transaction.put('removed', REMOVED_EVENTS_KEY, removed);
}
