import { Event_Category as Category, Event_Severity as Severity, ReplicaStatus_Phase as Phase, type Event } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  WorkQueue,
  logFailure,
  errorKindOf,
  type Clock,
  type Counter,
  noMeter,
  noTracer,
  type Log,
  type Meter,
  type Random,
  type Tracer,
  type WorkResult,
} from '@cloudless/base';
import { copyReplica, holdsResources, type ClusterState, type RecordChange, type Stored } from '@cloudless/cluster-state';
import { describeReasons, type Cluster, type Placement } from '@cloudless/scheduler';
import { isOver } from './commit.js';
import { newestOf } from './causes.js';
import type { NodeDirectory } from './node-directory.js';
import { toPlacementRequest } from './scheduler-input.js';

/** What {@link Placer} works with. */
export interface PlacerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly cluster: Cluster;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
  readonly tracer?: Tracer;
}

/** Replicas of one workload and version: they need the same of a node. */
interface Batch {
  readonly workload: WorkloadRecord;
  readonly version: number;
  readonly priority: number;
  readonly replicas: Stored<ReplicaRecord>[];
}

/** Where a replica goes, and with which score. */
interface Placed {
  readonly nodeId: string;
  readonly score: number;
}

/** A replica and an event each fit twice into a transaction of 100; more at once only makes a conflict dearer. */
const MAX_PLACED_PER_COMMIT = 45;

/**
 * Gives every replica that waits for a node one, the highest priority first, and tells the others why not. Woken by
 * whatever could change an answer: a new replica, a node that joined or changed, a reservation that was released.
 */
export class Placer {
  private readonly queue: WorkQueue<'place'>;
  private readonly unsubscribes: (() => void)[];

  private readonly placed: Counter;

  constructor(private readonly deps: PlacerDeps) {
    this.placed = (deps.meter ?? noMeter).counter({
      name: 'cloudless_placements_total',
      help: 'Replicas that the scheduler decided about, by result: placed, or unplaced when no node fits.',
      labels: ['result'],
    });
    this.queue = new WorkQueue({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'placement' },
      handle: () => this.place(),
      onError: (_key, reason) => logFailure(deps.log, 'placement failed', reason),
      backoff: { firstMs: 20, maxMs: 1_000, jitter: 0.2 },
    });
    this.unsubscribes = [
      deps.state.subscribe((changes) => {
        if (changes.some(changesPlacement)) this.queue.wake('place');
      }),
      deps.nodes.subscribe(() => this.queue.wake('place')),
    ];
    this.queue.wake('place');
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    await this.queue.stop();
  }

  private async place(): Promise<WorkResult> {
    // Woken again when that ends: the record of the cluster changes.
    if (this.deps.state.restored !== undefined) return { kind: 'done' };
    const batch = this.nextBatch(new Set());
    if (batch === undefined) return { kind: 'done' };
    const refused = new Set<string>();
    for (let next: Batch | undefined = batch; next !== undefined; next = this.nextBatch(refused)) {
      const batchNow = next;
      const moved = await (this.deps.tracer ?? noTracer).follow(
        batchNow.workload.uid,
        'place replicas',
        { workloadId: batchNow.workload.uid, replicas: batchNow.replicas.length },
        () => this.placeBatch(batchNow),
      );
      if (moved === 'conflict') return { kind: 'again' }; // the view shows by now what it conflicted with
      if (moved === 'over') return { kind: 'done' };
      if (moved === 'none') refused.add(batchKey(next.workload.uid, next.version));
    }
    return { kind: 'done' };
  }

  /** The most urgent replicas: by priority, then by age. One pass over those waiting, whatever their number. */
  private nextBatch(refused: ReadonlySet<string>): Batch | undefined {
    const view = this.deps.state.view();
    const batches = new Map<string, Batch>();
    for (const replica of view.unplaced()) {
      const { uid, version, desiredRunning, phase } = replica.value;
      const key = batchKey(uid, version);
      if (refused.has(key) || !desiredRunning || phase !== Phase.PENDING) continue;
      const known = batches.get(key);
      if (known !== undefined) {
        known.replicas.push(replica);
        continue;
      }
      const workload = view.workload(uid);
      const template = view.version(uid, version)?.template;
      if (workload === undefined || template === undefined) continue;
      batches.set(key, { workload: workload.value, version, priority: template.priority ?? 0, replicas: [replica] });
    }
    return [...batches.values()].sort((a, b) => b.priority - a.priority || ageOrder(a, b))[0];
  }

  private async placeBatch(batch: Batch): Promise<'some' | 'none' | 'conflict' | 'over'> {
    const { state, cluster } = this.deps;
    const view = state.view();
    const template = view.version(batch.workload.uid, batch.version)?.template;
    if (template === undefined) return 'none';
    const replicas = batch.replicas.sort((a, b) => Number(a.value.sequence - b.value.sequence));
    const asked = Math.min(replicas.length, MAX_PLACED_PER_COMMIT);
    const placements = cluster.place(toPlacementRequest(batch.workload, template), asked);
    const refusal = placements.find((placement) => !placement.placed);
    const transaction = state.transaction();
    const placed: (Placed & { readonly replica: ReplicaRecord })[] = [];
    const told: ReplicaRecord[] = [];
    for (const [index, replica] of replicas.entries()) {
      if (transaction.size >= MAX_PLACED_PER_COMMIT) break;
      // What is refused to one is refused to all after it, also to those beyond this commit.
      const placement = placements[index] ?? refusal;
      const next = placement === undefined ? undefined : afterPlacement(replica.value, placement, view.revision);
      if (next === undefined) continue;
      transaction.updateReplica(replica, next);
      if (placement?.placed !== true) told.push(replica.value);
      else placed.push({ nodeId: placement.nodeId, score: placement.score, replica: replica.value });
    }
    if (transaction.size === 0) return 'none';
    for (const nodeId of new Set(placed.map(({ nodeId }) => nodeId))) {
      // A node that was cordoned, changed or removed meanwhile may not fit any more.
      const node = view.node(nodeId);
      if (node !== undefined) transaction.require('node', nodeId, node);
    }
    const verdict = (about: readonly ReplicaRecord[]): Verdict => ({
      replicas: about,
      causedBy: newestOf(...about.map(({ id }) => view.lastEventOfReplica(id))),
      decisionId: `schedule/${batch.workload.uid}@${view.revision}`,
    });
    if (placed.length > 0) transaction.event(placedEvent(batch, placed, verdict(placed.map(({ replica }) => replica))));
    if (told.length > 0 && refusal !== undefined)
      transaction.event(unplacedEvent(batch, replicas.length - placed.length, refusal, verdict(told)));
    try {
      await state.commit(transaction);
    } catch (reason) {
      if (isOver(reason)) return 'over';
      if (errorKindOf(reason) === 'conflict') return 'conflict';
      throw reason;
    }
    this.placed.add(placed.length, { result: 'placed' });
    this.placed.add(told.length, { result: 'unplaced' });
    this.deps.log.info('replicas placed', {
      workloadId: batch.workload.uid,
      placed: placed.length,
      unplaced: replicas.length - placed.length,
    });
    return 'some';
  }
}

/** The replica with its node, or with the reason why it has none; undefined when nothing changes. */
function afterPlacement(replica: ReplicaRecord, placement: Placement, revision: bigint): ReplicaRecord | undefined {
  if (placement.placed) {
    return copyReplica(replica, { nodeId: placement.nodeId, phase: Phase.ASSIGNED, reason: '', orderRevision: revision });
  }
  const reason = `no node fits: ${describeReasons(placement.reasons)}`;
  return reason === replica.reason ? undefined : copyReplica(replica, { reason });
}

/** What the scheduler decided for some replicas of a batch. */
interface Verdict {
  readonly replicas: readonly ReplicaRecord[];
  readonly causedBy: Event | undefined;
  readonly decisionId: string;
}

function placedEvent({ workload }: Batch, placements: readonly Placed[], { replicas, causedBy, decisionId }: Verdict) {
  const placedOn = placements.map(({ nodeId }) => nodeId);
  const counts = new Map<string, number>();
  for (const nodeId of placedOn) counts.set(nodeId, (counts.get(nodeId) ?? 0) + 1);
  const where = [...counts].map(([nodeId, count]) => `${count} on ${nodeId}`).join(', ');
  return {
    severity: Severity.INFO,
    category: Category.SCHEDULING,
    reason: 'ReplicasPlaced',
    message: `placed ${placedOn.length} ${placedOn.length === 1 ? 'replica' : 'replicas'}: ${where}`,
    namespace: workload.namespace,
    workload: workload.name,
    ...(counts.size === 1 ? { nodeId: placedOn[0] ?? '' } : {}),
    ...about(replicas),
    causedBy,
    decision: { id: decisionId, why: whyThere(placements) },
  };
}

/** The score is that at the moment of the placement: the next replica finds the node fuller. */
function whyThere(placements: readonly Placed[]): string {
  const [first] = placements;
  const scores = placements.map(({ score }) => score);
  const [lowest, highest] = [Math.min(...scores), Math.max(...scores)].map((score) => score.toFixed(3));
  if (first === undefined) return '';
  return placements.length === 1
    ? `${first.nodeId} was the best node that fits, with a score of ${highest}`
    : `each went to the best node that fitted it, with scores from ${lowest} to ${highest}`;
}

/** Which replicas an event is about. */
function about(replicas: readonly ReplicaRecord[]) {
  const [first] = replicas;
  return {
    replicaIds: replicas.map(({ id }) => id),
    ...(replicas.length === 1 ? { replicaId: first?.id ?? '' } : {}),
  };
}

function unplacedEvent({ workload }: Batch, count: number, refusal: Placement, verdict: Verdict) {
  const why = refusal.placed ? '' : describeReasons(refusal.reasons);
  return {
    severity: Severity.WARNING,
    category: Category.SCHEDULING,
    reason: 'ReplicasUnplaced',
    message: `no node fits ${count} ${count === 1 ? 'replica' : 'replicas'}: ${why}`,
    namespace: workload.namespace,
    workload: workload.name,
    ...about(verdict.replicas),
    causedBy: verdict.causedBy,
    decision: { id: verdict.decisionId, why: why === '' ? '' : `no node fits: ${why}` },
  };
}

function batchKey(uid: string, version: number): string {
  return `${uid}/${version}`;
}

function ageOrder(a: Batch, b: Batch): number {
  const [first, second] = [a, b].map(({ workload }) => Number(workload.createdAt?.seconds ?? 0n));
  return (first ?? 0) - (second ?? 0) || (a.workload.uid < b.workload.uid ? -1 : 1);
}

function changesPlacement({ kind, before, after }: RecordChange): boolean {
  if (kind === 'node' || kind === 'meta') return true;
  if (kind !== 'replica') return false;
  const [was, is] = [before as ReplicaRecord | undefined, after as ReplicaRecord | undefined];
  if (was === undefined || is === undefined) return true;
  return was.nodeId !== is.nodeId || was.desiredRunning !== is.desiredRunning || holdsResources(was) !== holdsResources(is);
}
