import { create } from '@bufbuild/protobuf';
import {
  MessageWriter,
  WatchReplicasResponseSchema,
  createEncodedMessage,
  matchesLabels,
  parseLabelSelector,
  type WatchReplicasRequest,
  type WatchReplicasResponse,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { StopSignal } from '@cloudless/base';
import type { HistoricChange, RecordChange } from '@cloudless/cluster-state';
import type { ReadDeps } from '../ports.js';
import { presentWorkloadReplicas, writeWorkloadReplicas } from '../workload/workload-replicas.js';
import { ChangeQueue } from './change-queue.js';
import type { LivenessChanges } from './liveness-changes.js';
import { BOOKMARK_MS } from './wakeup.js';
import { listWorkloadsOnNode, mayHaveChangedZone } from './watch-workloads.js';

/** Most replicas of one response: large enough that the costs of a message do not count. */
const MAX_REPLICAS = 250;

export type WatchReplicasDeps = Pick<ReadDeps, 'state' | 'clock' | 'presenter'> & {
  readonly livenessChanges: LivenessChanges;
};

/** Visibility and encoding of the replicas that {@link watchReplicas} sends. */
export interface WatchReplicasOptions {
  /**
   * Returns true for the namespaces whose replicas are sent; empty in its argument for replicas of
   * deleted workloads.
   */
  readonly isVisible: (namespace: string) => boolean;
  /** True when the responses are encoded by `toBinary`: all watches then share bytes. */
  readonly isBinary: boolean;
}

/** Name of a workload whose replicas a client has. */
type ShownName = Pick<WorkloadRecord, 'namespace' | 'name'>;

/** The changes of one response, by uid. */
type Groups = Map<string, Group>;

interface Group {
  /** The name that the client knows already. */
  readonly shown: ShownName | undefined;
  readonly replicas: ReplicaRecord[];
  readonly removedIds: string[];
}

/**
 * Watches replicas: sends the current ones, then `synced`, then every change, several in one
 * response when they are due. The watch keeps the uids of the workloads that were sent, not the
 * replicas.
 * @throws kind `invalid` when the label selector cannot be parsed; the errors of `watchRecords`.
 */
export function watchReplicas(
  deps: WatchReplicasDeps,
  request: WatchReplicasRequest,
  options: WatchReplicasOptions,
  signal: StopSignal,
): AsyncGenerator<WatchReplicasResponse> {
  return new ReplicaWatch(deps, request, options).run(signal);
}

class ReplicaWatch {
  private readonly queue = new ChangeQueue();
  private readonly selector;
  private readonly writer = new MessageWriter();
  /** The workloads of which the client may have replicas, by uid. */
  private readonly shown = new Map<string, ShownName>();
  /** Workloads in `shown` that were deleted. */
  private readonly deleted = new Set<string>();
  /** Workloads that the start has not sent yet. Their changes need no mark. */
  private readonly unsent = new Set<string>();

  constructor(
    private readonly deps: WatchReplicasDeps,
    private readonly request: WatchReplicasRequest,
    private readonly options: WatchReplicasOptions,
  ) {
    this.selector = parseLabelSelector(request.labelSelector);
  }

  async *run(signal: StopSignal): AsyncGenerator<WatchReplicasResponse> {
    const { state } = this.deps;
    const { afterRevision } = this.request;
    if (afterRevision > 0n) await state.checkRevision(afterRevision);
    const unsubscribes = this.follow();
    try {
      if (afterRevision === 0n) yield* this.sendCurrent();
      const missed = afterRevision === 0n ? 0 : await this.markMissed(afterRevision, signal);
      yield* this.sendChanges(missed, signal);
    } finally {
      for (const unsubscribe of unsubscribes) unsubscribe();
    }
  }

  private follow(): readonly (() => void)[] {
    const { state, livenessChanges } = this.deps;
    return [
      state.subscribe((changes, revision) => {
        for (const change of changes)
          for (const id of this.listAffected(change)) this.queue.mark(id, revision);
      }),
      // As in watchRecords, the change of live state counts as one of the next revision.
      livenessChanges.subscribe((nodeId, kind, revision) => {
        if (kind !== 'liveness') return;
        for (const id of this.listOnNode(nodeId)) this.queue.mark(id, revision + 1n);
      }),
      state.onEnd((reason) => this.queue.fail(reason)),
    ];
  }

  /** Sends all current replicas, workload by workload. */
  private async *sendCurrent(): AsyncGenerator<WatchReplicasResponse> {
    for (const uid of this.listCurrentWorkloads()) this.unsent.add(uid);
    let groups: Groups = new Map();
    let count = 0;
    for (const uid of [...this.unsent]) {
      this.unsent.delete(uid);
      for (const replica of this.listReplicas(uid)) {
        this.openGroup(groups, uid).replicas.push(replica);
        count += 1;
        if (count < MAX_REPLICAS) continue;
        yield this.createResponse(groups, 0n);
        [groups, count] = [new Map(), 0];
      }
    }
    if (count > 0) yield this.createResponse(groups, 0n);
  }

  /**
   * Sends `synced` once the first keys were sent, then changes until the signal is aborted.
   * @param missed - Number of keys in the queue that a resumed watch has missed.
   */
  private async *sendChanges(
    missed: number,
    signal: StopSignal,
  ): AsyncGenerator<WatchReplicasResponse> {
    const { clock, state } = this.deps;
    const getRevision = (): bigint => this.queue.getDeliveredRevision(state.view().revision);
    let remaining = missed;
    let isSynced = false;
    let bookmarkAtMs = clock.now() + BOOKMARK_MS;
    for (;;) {
      if (!isSynced && remaining <= 0) {
        isSynced = true;
        yield create(WatchReplicasResponseSchema, { synced: true, revision: getRevision() });
      }
      const turn = await this.queue.next(clock, signal, bookmarkAtMs);
      if (turn.kind === 'stopped') return;
      if (turn.kind === 'silence') {
        yield create(WatchReplicasResponseSchema, { revision: getRevision() });
      } else {
        const most = isSynced ? MAX_REPLICAS : Math.min(MAX_REPLICAS, remaining);
        const ids = [turn.key, ...this.queue.take(most - 1)];
        remaining -= ids.length;
        const groups = this.readGroups(ids);
        this.forgetDeleted();
        if (groups.size === 0) continue;
        yield this.createResponse(groups, getRevision());
      }
      bookmarkAtMs = clock.now() + BOOKMARK_MS;
    }
  }

  /**
   * Marks what changed after a revision: in the history of the store, and in the live state of nodes.
   * @returns The number of marked replicas.
   */
  private async markMissed(after: bigint, signal: StopSignal): Promise<number> {
    const { state, livenessChanges } = this.deps;
    const view = state.view();
    const until = view.revision;
    for (const { value } of view.workloads())
      if (this.matchesWorkload(value)) this.shown.set(value.uid, value);
    const live = [...livenessChanges.listChangedSince(after, 'liveness')];
    // Only what has changed, not how: the history may be long, and the current state is sent.
    const changed = new Map<
      string,
      { readonly change: HistoricChange; readonly revision: bigint }
    >();
    for await (const { revision, changes } of after < until
      ? state.changesAfter(after, ['workload', 'replica', 'node'], signal)
      : []) {
      for (const { kind, id } of changes) {
        const key = `${kind} ${id}`;
        if (!changed.has(key)) changed.set(key, { change: { kind, id }, revision });
      }
      if (revision >= until) break;
    }
    const entries = [...changed.values()];
    if (entries.some(({ change }) => change.kind === 'workload')) {
      const before = await state.recordsAt('workload', after);
      for (const record of before.values())
        if (this.matchesWorkload(record)) this.shown.set(record.uid, record);
    }
    const marks = new Map<string, bigint>();
    const mark = (id: string, revision: bigint): void => {
      const known = marks.get(id);
      if (known === undefined || revision < known) marks.set(id, revision);
    };
    for (const { change, revision } of entries)
      for (const id of this.listAffected(change)) mark(id, revision);
    for (const [nodeId, revision] of live)
      for (const id of this.listOnNode(nodeId)) mark(id, revision + 1n);
    this.queue.putBefore([...marks].sort(([, a], [, b]) => (a < b ? -1 : a > b ? 1 : 0)));
    return marks.size;
  }

  /**
   * Lists the ids of the replicas that the client must get, or get rid of, after a change. A change
   * from the history contains no records.
   */
  private *listAffected(change: RecordChange | HistoricChange): Generator<string, void> {
    const { kind, id } = change;
    if (kind === 'replica') {
      const replicaId = toReplicaId(id);
      const before = 'before' in change ? (change.before as ReplicaRecord) : undefined;
      const replica = this.deps.state.view().replica(replicaId)?.value ?? before;
      if (this.isAffected(replicaId, replica)) yield replicaId;
    } else if (kind === 'workload' && !this.unsent.has(id)) {
      const isDeleted = this.deps.state.view().workload(id) === undefined;
      if (isDeleted && this.shown.has(id)) this.deleted.add(id);
      // The replicas show nothing of their workload, but may no longer match the filter.
      if (isDeleted || this.selector.length > 0)
        for (const { value } of this.deps.state.view().replicasOf(id))
          if (this.isAffected(value.id, value)) yield value.id;
    } else if (kind === 'node' && mayHaveChangedZone(change as RecordChange<'node'>)) {
      yield* this.listOnNode(id);
    }
  }

  private *listOnNode(nodeId: string): Generator<string, void> {
    for (const { value } of this.deps.state.view().replicasOn(nodeId))
      if (this.isAffected(value.id, value)) yield value.id;
  }

  /** @param replica - The replica in any of its states; undefined when none is known. */
  private isAffected(id: string, replica: ReplicaRecord | undefined): boolean {
    const uid = replica?.uid ?? toUid(id);
    if (this.unsent.has(uid)) return false;
    const { nodeId } = this.request;
    // A replica that has a node never had another one.
    if (nodeId !== '' && replica !== undefined && replica.nodeId !== nodeId) return false;
    return this.mayBeShown(uid) || (replica !== undefined && this.matches(replica));
  }

  /** Returns the uids of the workloads to begin with. */
  private listCurrentWorkloads(): Iterable<string> {
    const view = this.deps.state.view();
    const { nodeId } = this.request;
    if (nodeId !== '') return listWorkloadsOnNode(view, nodeId);
    const uids = Array.from(view.workloadsByName(), ({ value }) => value)
      .filter((workload) => this.matchesWorkload(workload))
      .map(({ uid }) => uid);
    // Replicas of deleted workloads remain on lost nodes only.
    const lost = [...view.nodes()].filter(({ value }) => value.lost);
    const orphans = lost.flatMap(({ value }) =>
      [...listWorkloadsOnNode(view, value.id)].filter((uid) => view.workload(uid) === undefined),
    );
    return [...uids, ...orphans];
  }

  /** Lists the current replicas of a workload that match, oldest first. The view may change. */
  private *listReplicas(uid: string): Generator<ReplicaRecord, void> {
    let after: number | undefined;
    for (;;) {
      const part: ReplicaRecord[] = [];
      for (const { value } of this.deps.state.view().replicasInOrder(uid, after)) {
        part.push(value);
        if (part.length === MAX_REPLICAS) break;
      }
      for (const replica of part) if (this.matches(replica)) yield replica;
      if (part.length < MAX_REPLICAS) return;
      after = Number(part.at(-1)?.sequence);
    }
  }

  private matches({ uid, nodeId }: ReplicaRecord): boolean {
    const { request } = this;
    if (request.nodeId !== '' && request.nodeId !== nodeId) return false;
    const workload = this.deps.state.view().workload(uid)?.value;
    if (workload !== undefined) return this.matchesWorkload(workload);
    return this.includesDeleted();
  }

  /** Returns true when replicas of deleted workloads match. */
  private includesDeleted(): boolean {
    const { namespace, name } = this.request;
    const isFiltered = namespace !== '' || name !== '' || this.selector.length > 0;
    return !isFiltered && this.options.isVisible('');
  }

  /** Returns true when the client may have replicas of the workload. */
  private mayBeShown(uid: string): boolean {
    if (this.shown.has(uid)) return true;
    // A resumed watch does not know which replicas of deleted workloads the client has.
    return this.deps.state.view().workload(uid) === undefined && this.includesDeleted();
  }

  private matchesWorkload({ namespace, name, spec }: WorkloadRecord): boolean {
    const { request } = this;
    return (
      (request.namespace === '' || request.namespace === namespace) &&
      (request.name === '' || request.name === name) &&
      this.options.isVisible(namespace) &&
      matchesLabels(this.selector, spec?.labels ?? {})
    );
  }

  /** Reads the current state of replicas. */
  private readGroups(ids: readonly string[]): Groups {
    const groups: Groups = new Map();
    const view = this.deps.state.view();
    for (const id of ids) {
      const replica = view.replica(id)?.value;
      const uid = replica?.uid ?? toUid(id);
      if (replica !== undefined && this.matches(replica))
        this.openGroup(groups, uid).replicas.push(replica);
      else if (this.mayBeShown(uid)) this.openGroup(groups, uid).removedIds.push(id);
    }
    return groups;
  }

  private openGroup(groups: Groups, uid: string): Group {
    const group = groups.get(uid) ?? {
      shown: this.shown.get(uid),
      replicas: [],
      removedIds: [],
    };
    groups.set(uid, group);
    return group;
  }

  private createResponse(groups: Groups, revision: bigint): WatchReplicasResponse {
    const view = this.deps.state.view();
    const named = Array.from(groups, ([uid, group]) => {
      const { namespace, name } = group.shown ?? view.workload(uid)?.value ?? NO_NAME;
      if (group.replicas.length > 0) this.shown.set(uid, { namespace, name });
      return { uid, namespace, name, ...group };
    });
    const { presenter } = this.deps;
    if (!this.options.isBinary)
      return create(WatchReplicasResponseSchema, {
        workloads: presentWorkloadReplicas(presenter, named),
        revision,
      });
    const { writer } = this;
    writeWorkloadReplicas(writer, presenter, named);
    const response = createEncodedMessage(WatchReplicasResponseSchema, writer.finish());
    response.revision = revision;
    return response;
  }

  /** Forgets the deleted workloads whose removed replicas were all sent. */
  private forgetDeleted(): void {
    if (this.deleted.size === 0 || !this.queue.isEmpty) return;
    const view = this.deps.state.view();
    for (const uid of this.deleted) {
      if (view.replicaCounts(uid).total > 0) continue;
      this.shown.delete(uid);
      this.deleted.delete(uid);
    }
  }
}

const NO_NAME: ShownName = { namespace: '', name: '' };

/** Returns the uid of the workload of a replica. */
function toUid(replicaId: string): string {
  return replicaId.slice(0, replicaId.lastIndexOf('-'));
}

/** Returns the id of a replica from the id in its key. @see replicaIdOf */
function toReplicaId(keyId: string): string {
  const [uid = '', sequence = ''] = keyId.split('/');
  return `${uid}-${Number(sequence)}`;
}
