import {
  noMeter,
  silentLog,
  randomHex,
  sleep,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type StopSignal,
  type Timer,
} from '@cloudless/base';
import type { ReplicaRecord } from '@cloudless/api/store';
import {
  hasEndpoint,
  isLive,
  type ClusterState,
  type RecordChange,
} from '@cloudless/cluster-state';
import { NodeStatus_Phase as NodePhase, type TrafficReport } from '@cloudless/api';
import type { NodeDirectory } from '../node/node-directory.js';
import type { TrafficSource, TrafficWindow } from '../rollout/gate/traffic-window.js';
import { publishFeedMetrics, type FeedCounts } from './feed-metrics.js';
import { NetworkModel, type NetworkChanges } from './network-model.js';
import { RemovalWaits } from './removal-waits.js';
import { encodeChanges, encodeEntries, encodeStart, toIncomplete } from './update-encoding.js';
import { UpdateLog } from './update-log.js';

export interface NetworkFeedDeps {
  readonly state: Pick<ClusterState, 'view' | 'subscribe' | 'storeRolledBack'>;
  readonly nodes: Pick<NodeDirectory, 'status' | 'subscribe'>;
  /** Receives the traffic that proxies count. Default: dropped. */
  readonly traffic?: Pick<TrafficWindow, 'open'>;
  readonly clock: Clock;
  readonly random: Random;
  /** Default: no messages. */
  readonly log?: Log;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Bytes of updates that are kept for slow and returning proxies. Default: 16 MiB. */
  readonly logBytes?: number;
}

/** Last complete update that the proxy of a node has applied, from which the feed continues. */
export interface FeedPosition {
  readonly nodeId: string;
  /** Empty: the proxy has none. */
  readonly feedId: string;
  /** Revision of the last complete update that the proxy has applied. */
  readonly revision: bigint;
}

/** A proxy that reads the feed. */
export interface FeedReader {
  /**
   * Yields encoded NetworkUpdates until `signal` is aborted. Everything first, unless the feed
   * continues at the position; and everything again when the reader is too slow.
   */
  read(signal: StopSignal): AsyncGenerator<Uint8Array>;
  /** Records that the proxy has applied all updates up to a revision. */
  acknowledge(revision: bigint): void;
  /** Records the traffic that the proxy has counted. */
  addTraffic(report: TrafficReport): void;
  /** Removes the reader. */
  close(): void;
}

/** Everything, encoded. */
interface Snapshot {
  /** Position of the first update that a reader needs after the snapshot. */
  readonly position: number;
  readonly pieces: Promise<readonly Uint8Array[]>;
}

interface Started {
  readonly model: NetworkModel;
  readonly log: UpdateLog;
}

/** Entries that are derived in one turn of the event loop: a few milliseconds. */
const SLICE_ENTRIES = 1_000;
/** Shortest time between two updates, in which changes are collected. */
const MIN_INTERVAL_MS = 20;
/**
 * Milliseconds by which each reader lengthens that time, so that the sending of updates takes at
 * most about half of a processor: each takes about 50 µs.
 */
const INTERVAL_MS_PER_READER = 0.1;
/**
 * Interval of the check whether the restored state has been accepted. Endpoints must be right
 * within 5 s after the acceptance.
 */
const ACCEPTANCE_POLL_MS = 500;
const LOG_BYTES = 16 * 1024 * 1024;
const FEED_ID_BYTES = 8;

/**
 * Feeds the network proxies of all nodes from the records of the cluster. Starts with the first
 * reader, so a cluster without proxies has no cost. Every update is encoded once.
 *
 * Sends nothing while a state that went back in time waits for its acceptance: the proxies know
 * newer endpoints than the records, and go on with them.
 */
export class NetworkFeed {
  private readonly readers = new Set<Reader>();
  /** Names the history of {@link log}. Empty until the feed starts. */
  private feedId = '';
  private model: NetworkModel | undefined;
  private log: UpdateLog | undefined;
  private snapshot: Snapshot | undefined;
  /** Revision up to which {@link log} contains all changes. */
  private flushedRevision = 0n;
  /**
   * Revision of the newest update, or of the start. A reader that has applied this is up to date.
   */
  private loggedRevision = 0n;
  private unsubscribes: (() => void)[] = [];
  private timer: Timer | undefined;
  private lastFlushMs = -Infinity;
  private readonly waiting = new Set<() => void>();
  /** Replicas that were ordered to stop since the last flush. */
  private leaving = new Set<string>();
  private readonly removals: RemovalWaits;
  private readonly goneListeners = new Set<(replicaIds: readonly string[]) => void>();
  private readonly unpublish: () => void;
  private closed = false;
  private encodedUpdates = 0;
  private encodedBytes = 0;
  private encodedSnapshots = 0;
  private sentBytes = 0;
  private startedAnew = 0;
  private resynchronised = 0;

  constructor(private readonly deps: NetworkFeedDeps) {
    this.removals = new RemovalWaits({
      clock: deps.clock,
      log: deps.log ?? silentLog,
      onGone: (replicaIds) => {
        for (const listener of this.goneListeners) listener(replicaIds);
      },
    });
    this.unpublish = publishFeedMetrics(deps.meter ?? noMeter, () => this.counts);
  }

  get counts(): FeedCounts {
    const { encodedUpdates, encodedBytes, encodedSnapshots, loggedRevision } = this;
    const { sentBytes, startedAnew, resynchronised } = this;
    return {
      ...{ encodedUpdates, encodedBytes, encodedSnapshots },
      ...{ sentBytes, startedAnew, resynchronised },
      readers: this.readers.size,
      readersBehind: [...this.readers].filter(({ applied }) => applied < loggedRevision).length,
      waitingRemovals: this.removals.replicaCount,
      derivedEntries: this.model?.derivedEntries ?? 0,
    };
  }

  /** Adds the proxy of a node. Close the reader when the stream of the proxy ends. */
  open(position: FeedPosition): FeedReader {
    this.start();
    const reader = new Reader(this, position, this.deps.traffic?.open(position.nodeId));
    this.readers.add(reader);
    this.removals.open(reader);
    return reader;
  }

  /** Returns true when proxies may know a replica as an endpoint of a service. */
  hasEndpoint({ id, uid }: Pick<ReplicaRecord, 'id' | 'uid'>): boolean {
    return this.model?.hasReplica(id, uid) ?? false;
  }

  /**
   * Returns true when no connected proxy chooses a leaving replica for new connections any more.
   */
  isGone(replicaId: string): boolean {
    return this.removals.isGone(replicaId);
  }

  /**
   * Calls the listener once for each leaving replica, as soon as no connected proxy chooses the
   * replica for new connections any more.
   * @returns A function that ends the subscription.
   */
  onGone(listener: (replicaIds: readonly string[]) => void): () => void {
    this.goneListeners.add(listener);
    return () => this.goneListeners.delete(listener);
  }

  /** Ends all readers. */
  close(): void {
    this.closed = true;
    this.readers.clear();
    this.removals.stop();
    this.unpublish();
    this.timer?.cancel();
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    this.wake();
  }

  /** @internal */
  async *read(position: FeedPosition, signal: StopSignal): AsyncGenerator<Uint8Array> {
    for await (const bytes of this.readUpdates(position, signal)) {
      this.sentBytes += bytes.byteLength;
      yield bytes;
    }
  }

  /** @internal */
  acknowledge(reader: Reader, revision: bigint): void {
    if (this.readers.has(reader)) this.removals.acknowledge(reader, revision, this.loggedRevision);
  }

  /** @internal */
  remove(reader: Reader): void {
    if (this.readers.delete(reader)) this.removals.close(reader);
  }

  private async *readUpdates(
    position: FeedPosition,
    signal: StopSignal,
  ): AsyncGenerator<Uint8Array> {
    const started = await this.waitForStart(signal);
    if (started === undefined) return;
    const { log } = started;
    let next = position.feedId === this.feedId ? log.findAfter(position.revision) : undefined;
    if (next !== undefined) yield encodeStart(this.feedId, position.revision);
    else this.startedAnew += 1;
    for (let attempts = 0; !this.closed && !signal.aborted;) {
      if (next === undefined) {
        const snapshot = this.getSnapshot(started);
        const pieces = await snapshot.pieces;
        // Only the last update that exists now is complete: a proxy may know more than the snapshot
        // contains, and would remove what the snapshot lacks. A proxy for which the log was too
        // short gets the snapshot as it is, so that it is complete at some time.
        attempts += 1;
        const present = attempts === 1 ? log.end : snapshot.position;
        for (const piece of pieces) {
          yield snapshot.position < present ? toIncomplete(piece) : piece;
          if (this.closed || signal.aborted) return;
        }
        next = snapshot.position;
        for (; next < present; next += 1) {
          const update = log.read(next);
          if (update === undefined || update === 'dropped') break;
          yield next + 1 < present ? toIncomplete(update.bytes) : update.bytes;
          if (this.closed || signal.aborted) return;
        }
      }
      const update = log.read(next);
      if (update === undefined) await this.waitForUpdate(signal);
      else if (update === 'dropped') {
        this.resynchronised += 1;
        next = undefined;
      } else {
        yield update.bytes;
        next += 1;
      }
    }
  }

  private start(): void {
    if (this.model !== undefined || this.closed) return;
    const { state, nodes, random } = this.deps;
    this.feedId = randomHex(random, FEED_ID_BYTES);
    const isLost = (nodeId: string): boolean => nodes.status(nodeId).phase === NodePhase.LOST;
    const model = new NetworkModel({ view: () => state.view(), isLost });
    this.model = model;
    this.unsubscribes = [
      state.subscribe((changes) => {
        model.mark(changes);
        this.noteLeaving(changes);
        if (model.isBehind) this.schedule();
      }),
      nodes.subscribe((nodeId) => {
        model.markNode(nodeId);
        this.schedule();
      }),
    ];
    // Those that an earlier leader has ordered to stop.
    for (const { value } of state.view().replicas())
      if (!value.desiredRunning && hasEndpoint(value)) this.leaving.add(value.id);
    this.removals.expect(this.nodesWithProxy());
    this.schedule();
  }

  private noteLeaving(changes: readonly RecordChange[]): void {
    for (const { kind, before, after } of changes) {
      if (kind !== 'replica') continue;
      if (before !== undefined && (after === undefined || !isLive(after))) {
        this.leaving.delete(before.id);
        this.removals.removeReplica(before.id);
      } else if (before?.desiredRunning === true && after?.desiredRunning === false)
        if (this.hasEndpoint(after)) {
          this.leaving.add(after.id);
          this.schedule();
        }
    }
  }

  private schedule(): void {
    if (this.timer !== undefined || this.closed) return;
    const interval = Math.max(MIN_INTERVAL_MS, this.readers.size * INTERVAL_MS_PER_READER);
    const delay = Math.max(0, this.lastFlushMs + interval - this.deps.clock.now());
    this.timer = this.deps.clock.setTimer(delay, () => this.flush());
  }

  /** Derives a slice of what has changed, and appends an update once nothing is left. */
  private flush(): void {
    const { model } = this;
    this.timer = undefined;
    if (model === undefined || this.closed) return;
    model.update(SLICE_ENTRIES);
    if (model.isBehind || this.deps.state.storeRolledBack !== undefined) {
      const delay = model.isBehind ? 0 : ACCEPTANCE_POLL_MS;
      this.timer = this.deps.clock.setTimer(delay, () => this.flush());
      return;
    }
    this.lastFlushMs = this.deps.clock.now();
    const { revision } = this.deps.state.view();
    const changes = model.takeChanges();
    this.flushedRevision = revision;
    if (this.log === undefined) {
      this.log = new UpdateLog(revision, this.deps.logBytes ?? LOG_BYTES);
      this.loggedRevision = revision;
    } else if (changes !== undefined) this.append(this.log, changes, revision);
    this.wake();
    this.addBarrier();
  }

  private append(log: UpdateLog, changes: NetworkChanges, revision: bigint): void {
    for (const bytes of encodeChanges(changes, revision)) {
      this.encodedUpdates += 1;
      this.encodedBytes += bytes.byteLength;
      log.append({ revision, bytes });
    }
    this.loggedRevision = revision;
  }

  /** Nodes whose proxies followed the earlier leader, and will connect within seconds. */
  private *nodesWithProxy(): Iterable<string> {
    const { state, nodes } = this.deps;
    for (const { value } of state.view().nodes())
      if (value.hello?.network !== undefined)
        if (nodes.status(value.id).phase !== NodePhase.LOST) yield value.id;
  }

  /** Begins to wait until the proxies have applied the removal of replicas that leave. */
  private addBarrier(): void {
    const { leaving, loggedRevision: revision } = this;
    if (leaving.size === 0) return;
    this.leaving = new Set();
    this.removals.begin(leaving, revision);
  }

  /**
   * Waits for the first update, and for the acceptance of a state that went back in time.
   * @returns Undefined when the feed or the reader has ended.
   */
  private async waitForStart(signal: StopSignal): Promise<Started | undefined> {
    for (;;) {
      if (this.closed || signal.aborted) return undefined;
      const { model, log } = this;
      if (this.deps.state.storeRolledBack !== undefined) this.schedule();
      else if (model !== undefined && log !== undefined) return { model, log };
      await this.waitForUpdate(signal);
    }
  }

  /** Everything, shared by readers that start at about the same time. */
  private getSnapshot({ model, log }: Started): Snapshot {
    const known = this.snapshot;
    if (known !== undefined && log.end - known.position <= MAX_SNAPSHOT_UPDATES)
      if (log.read(known.position) !== 'dropped') return known;
    this.encodedSnapshots += 1;
    const entries = {
      settings: model.encodedSettings,
      services: model.services.values(),
      endpoints: model.endpoints.values(),
      nodes: model.nodes.values(),
      routes: model.routes.values(),
    };
    // The entries contain at least everything up to the revision of the last flush.
    const origin = { feedId: this.feedId, revision: this.flushedRevision };
    const pause = (): Promise<void> => sleep(this.deps.clock, 0);
    const pieces = encodeEntries(entries, origin, pause);
    return (this.snapshot = { position: log.end, pieces });
  }

  private waitForUpdate(signal: StopSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.waiting.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      this.waiting.add(wake);
      signal.addEventListener('abort', wake);
      if (signal.aborted || this.closed) wake();
    });
  }

  private wake(): void {
    for (const wake of [...this.waiting]) wake();
  }
}

/** Updates after a snapshot with which the snapshot still serves new readers. */
const MAX_SNAPSHOT_UPDATES = 100;

class Reader implements FeedReader {
  /** Revision of the newest complete update that the proxy has applied in this stream. */
  applied = 0n;

  constructor(
    private readonly feed: NetworkFeed,
    private readonly position: FeedPosition,
    private readonly traffic: TrafficSource | undefined,
  ) {}

  get nodeId(): string {
    return this.position.nodeId;
  }

  read(signal: StopSignal): AsyncGenerator<Uint8Array> {
    return this.feed.read(this.position, signal);
  }

  acknowledge(revision: bigint): void {
    if (revision <= this.applied) return;
    this.applied = revision;
    this.feed.acknowledge(this, revision);
  }

  addTraffic(report: TrafficReport): void {
    this.traffic?.add(report);
  }

  close(): void {
    this.traffic?.close();
    this.feed.remove(this);
  }
}
