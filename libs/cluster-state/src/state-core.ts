import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ClusterRecordSchema, type ClusterRecord } from '@cloudless/api/store';
import {
  CloudlessError,
  StoppedError,
  assert,
  errorFields,
  errorKindOf,
  noMeter,
  noTracer,
  randomHex,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type Tracer,
} from '@cloudless/base';
import { RevisionConflictError, type Revision, type StateStore } from '@cloudless/state-store';
import type { HistorySource } from './history.js';
import type { CandidateIdentity } from './leadership/campaign.js';
import { LeaderElection } from './leadership/leader-election.js';
import { LeadershipMetrics } from './leadership/leadership-metrics.js';
import { Leadership, type LeadershipMode } from './leadership/leadership.js';
import type { MutableTerm } from './leadership/leadership-term.js';
import { RestoredStateTracker, type AgentOrderState } from './leadership/restored-state.js';
import { CLUSTER_ID_KEY, LEADER_KEY, SCHEMA_VERSION, toEventId, toKey } from './records/records.js';
import { readClusterLayout } from './records/cluster-layout.js';
import { StateMetrics } from './state-metrics.js';
import { Transaction, type EventStamp } from './transaction/transaction.js';
import type { PreloadedView } from './view/preloaded-view.js';
import { RecentChanges } from './view/recent-changes.js';
import { SharedRead } from './view/shared-read.js';
import { FollowRetries } from './view/follow-retries.js';
import { ViewComparison } from './view/view-comparison.js';
import { ViewFollower } from './view/view-follower.js';
import { ViewFreshness } from './view/view-freshness.js';

export interface ClusterStateOptions {
  readonly store: StateStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /**
   * Name of this coordinator process, stored in the leader record. With `leadership: 'follow'` the
   * name must be another one after each start of the process.
   */
  readonly holder: string;
  /** How this coordinator becomes leader. Default: `takeAtStart`. */
  readonly leadership?: LeadershipMode;
  /**
   * Adds the first records of a new cluster to the transaction that creates the cluster. Not called
   * for a store that has a cluster. Default: no records.
   */
  readonly initializeCluster?: (transaction: Transaction) => void;
  /** The records of `store`, read when it was opened. Default: they are read from the store. */
  readonly preloaded?: PreloadedView;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Default: no traces. */
  readonly tracer?: Tracer;
}

/** What all `ClusterState` objects of one coordinator share. */
export class StateCore {
  readonly follower: ViewFollower;
  readonly leadership: Leadership;
  readonly restoredState: RestoredStateTracker;
  /** The newest revision of the store. */
  readonly newestRevision: SharedRead<Revision>;
  /** What readers of earlier changes need. */
  readonly history: HistorySource;
  private readonly metrics: StateMetrics;
  private cluster: ClusterRecord | undefined;
  private eventCount = 0;
  private freshness: ViewFreshness | undefined;
  private comparison: ViewComparison | undefined;
  private election: LeaderElection | undefined;
  private readonly eventStamp: EventStamp;

  constructor(readonly options: ClusterStateOptions) {
    const { store, clock, log, holder, leadership: mode = 'takeAtStart' } = options;
    this.newestRevision = new SharedRead(() => store.revision());
    const retries = mode === 'follow' ? new FollowRetries(clock, options.random, log) : undefined;
    this.follower = new ViewFollower(store, log, retries, options.preloaded);
    const { follower, newestRevision } = this;
    const recent = new RecentChanges(follower);
    this.history = { store, follower, recent, newestRevision };
    const { view } = follower;
    this.restoredState = new RestoredStateTracker({
      ...{ view, clock, log },
      epoch: () => this.leadership.epoch,
      transaction: () => this.createTransaction(this.leadership.newestTerm),
      commitObserved: (transaction) => this.commit(transaction),
    });
    const { restoredState } = this;
    this.leadership = new Leadership({ store, view, clock, restoredState, mode, holder, log });
    // The first subscription, so that all later listeners see the current leadership.
    this.follower.subscribe(() => this.leadership.followView());
    this.eventStamp = {
      nextId: () => toEventId(this.leadership.epoch, this.eventCount++),
      nowMs: () => clock.wallTime(),
    };
    this.metrics = new StateMetrics(
      options.meter ?? noMeter,
      clock,
      async () => ({ store: await store.revision(), view: view.revision }),
      () => this.follower.recordsDecoded,
    );
  }

  /** The id of this cluster; empty before {@link start}. */
  get clusterId(): string {
    return this.cluster?.clusterId ?? '';
  }

  /** Creates an empty transaction that commits only in this term; absent: never. */
  createTransaction(term: MutableTerm | undefined): Transaction {
    return new Transaction(this.eventStamp, term);
  }

  /** Commits a transaction under its term, and resolves once the view shows it. */
  commit(transaction: Transaction): Promise<Revision> {
    return this.measure(transaction, () => {
      const refusal = this.leadership.findRefusal(transaction.term);
      return refusal === undefined ? this.commitToStore(transaction) : Promise.reject(refusal);
    });
  }

  /**
   * Records that an agent holds orders that this store has never issued. Where leaders change, a
   * newer leader may have issued them without the knowledge of this one: asks the store first.
   */
  reportNewerState(held: AgentOrderState, term: MutableTerm | undefined): void {
    if (this.options.leadership !== 'follow') this.restoredState.reportNewerState(held);
    else if (term?.isActive === true) void this.reportUnlessDeposed(held, term);
  }

  private async reportUnlessDeposed(held: AgentOrderState, term: MutableTerm): Promise<void> {
    try {
      await this.leadership.findLoss(term, new Error('an agent holds orders of a newer leader'));
    } catch (reason) {
      // The agent sends its state again with its next session.
      this.options.log.warn('newer state of an agent could not be checked', errorFields(reason));
      return;
    }
    if (term.isActive) this.restoredState.reportNewerState(held);
  }

  /** Reads the store, and takes the leadership if the coordinator does that at its start. */
  async start(): Promise<void> {
    await readClusterLayout(this.options.store); // before any other record: they may be unreadable
    await this.follower.start();
    await this.retryOnConflict(() => this.ensureCluster());
    const { leadership: mode, store, clock, log } = this.options;
    if (mode === 'follow') {
      const { follower } = this;
      this.freshness = new ViewFreshness(store, follower, clock, log);
      const { meter = noMeter } = this.options;
      this.comparison = new ViewComparison({ store, follower, clock, log, meter });
      return;
    }
    await this.retryOnConflict(() =>
      this.leadership.take(this.createTransaction(undefined), (transaction) =>
        this.commitFreely(transaction),
      ),
    );
  }

  async close(): Promise<void> {
    this.metrics.close();
    this.freshness?.close();
    this.comparison?.close();
    await this.election?.close();
    await this.follower.close();
  }

  /** Milliseconds since the view is known to have shown everything; 0 for a single coordinator. */
  get viewAgeMs(): number {
    return this.freshness?.ageMs ?? 0;
  }

  /** Takes part in the election of the leader. */
  joinElection(identity: CandidateIdentity): LeaderElection {
    const { store, clock, random, log, holder, meter = noMeter, leadership: mode } = this.options;
    assert(mode === 'follow', 'only a coordinator that follows the store takes part in elections');
    assert(this.election === undefined, 'a coordinator takes part in the election once');
    const { follower, leadership } = this;
    const metrics = new LeadershipMetrics(meter);
    leadership.onRoleChange(({ role }) =>
      metrics.countChange(role === 'leader' ? 'gained' : 'lost'),
    );
    this.election = new LeaderElection({
      ...{ store, follower, leadership, clock, random, log, holder, identity, metrics },
    });
    return this.election;
  }

  /** Commits a transaction that requires no leadership. */
  private commitFreely(transaction: Transaction): Promise<Revision> {
    return this.measure(transaction, () => this.commitToStore(transaction));
  }

  private measure(transaction: Transaction, work: () => Promise<Revision>): Promise<Revision> {
    const { tracer = noTracer } = this.options;
    return tracer.run('commit', { writes: transaction.size }, () =>
      this.metrics.measureCommit(work),
    );
  }

  private async commitToStore(transaction: Transaction): Promise<Revision> {
    const { store } = this.options;
    if (this.follower.failure !== undefined) throw this.follower.failure;
    const operations = transaction.toOperations();
    this.metrics.countWrites(operations);
    const forget = this.follower.expect(operations);
    try {
      const { revision } = await store.txn(transaction.toCompares(), operations);
      await this.waitUntilShown(revision, transaction.term);
      return revision;
    } catch (reason) {
      if (!(reason instanceof RevisionConflictError)) throw reason;
      if (reason.scope === toKey('leader', LEADER_KEY) && transaction.term !== undefined) {
        const loss = await this.leadership.findLoss(transaction.term, reason);
        if (loss !== undefined) throw loss;
      }
      const { changedAt } = reason;
      await this.follower.waitForRevision(
        typeof changedAt === 'bigint' ? changedAt : await store.revision(),
      );
      // Also when accepting a restored state gave this coordinator a higher epoch.
      throw reason;
    } finally {
      forget();
    }
  }

  /**
   * Waits until the view shows a commit. Waits no longer than the term of the commit when the view
   * may lag for long, so that every commit of a term ends with it.
   */
  private async waitUntilShown(revision: Revision, term: MutableTerm | undefined): Promise<void> {
    if (this.options.leadership !== 'follow') return this.follower.waitForRevision(revision);
    try {
      await this.follower.waitForRevision(revision, term?.signal);
    } catch (reason) {
      if (!(reason instanceof StoppedError)) throw reason;
      throw new CloudlessError(
        'unavailable',
        `the change was committed at revision ${revision}, but the leadership of this coordinator ended before its view showed the change; read the newest state`,
        { cause: reason },
      );
    }
  }

  private async ensureCluster(): Promise<void> {
    const { clock, random } = this.options;
    this.cluster = this.follower.view.get('meta', CLUSTER_ID_KEY)?.value;
    if (this.cluster !== undefined) return;
    const created = create(ClusterRecordSchema, {
      clusterId: randomHex(random, CLUSTER_ID_BYTES),
      schemaVersion: SCHEMA_VERSION,
      createdAt: timestampFromMs(clock.wallTime()),
    });
    const transaction = this.createTransaction(undefined)
      .require('meta', CLUSTER_ID_KEY, 'absent')
      .put('meta', CLUSTER_ID_KEY, created);
    this.options.initializeCluster?.(transaction);
    await this.commitFreely(transaction);
    this.cluster = created;
  }

  /**
   * Retries after a conflict: when several coordinators start on one store, the loser of a race
   * reads the winner's records and continues.
   */
  private async retryOnConflict(attemptOnce: () => Promise<void>): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await attemptOnce();
      } catch (reason) {
        if (errorKindOf(reason) !== 'conflict' || attempt >= MAX_STARTS) throw reason;
        await this.follower.waitForRevision(await this.options.store.revision());
      }
    }
  }
}

/** 64 bits: enough that two clusters never get the same id. */
const CLUSTER_ID_BYTES = 8;
/** Most attempts. Each failed attempt means that another coordinator started at the same moment. */
const MAX_STARTS = 10;
