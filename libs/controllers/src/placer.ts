import { Event_Category as Category, Event_Severity as Severity, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { WorkQueue, errorFields, errorKindOf, type Clock, type Log, type Random, type WorkResult } from '@cloudless/base';
import { copyReplica, holdsResources, type ClusterState, type RecordChange, type Stored } from '@cloudless/cluster-state';
import { describeReasons, type Cluster, type Placement } from '@cloudless/scheduler';
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
}

/** Replicas of one workload and version: they need the same of a node. */
interface Batch {
  readonly workload: WorkloadRecord;
  readonly version: number;
  readonly priority: number;
  readonly replicas: Stored<ReplicaRecord>[];
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

  constructor(private readonly deps: PlacerDeps) {
    this.queue = new WorkQueue({
      clock: deps.clock,
      random: deps.random,
      handle: () => this.place(),
      onError: (_key, reason) => deps.log.error('placement failed', errorFields(reason)),
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
    const batch = this.nextBatch(new Set());
    if (batch === undefined) return { kind: 'done' };
    const refused = new Set<string>();
    for (let next: Batch | undefined = batch; next !== undefined; next = this.nextBatch(refused)) {
      const moved = await this.placeBatch(next);
      if (moved === 'conflict') return this.deps.state.isLeading ? { kind: 'retry' } : { kind: 'done' };
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

  private async placeBatch(batch: Batch): Promise<'some' | 'none' | 'conflict'> {
    const { state, cluster } = this.deps;
    const view = state.view();
    const template = view.version(batch.workload.uid, batch.version)?.template;
    if (template === undefined) return 'none';
    const replicas = batch.replicas.sort((a, b) => Number(a.value.sequence - b.value.sequence));
    const asked = Math.min(replicas.length, MAX_PLACED_PER_COMMIT);
    const placements = cluster.place(toPlacementRequest(batch.workload, template), asked);
    const refusal = placements.find((placement) => !placement.placed);
    const transaction = state.transaction();
    const placedOn: string[] = [];
    let told = 0;
    for (const [index, replica] of replicas.entries()) {
      if (transaction.size >= MAX_PLACED_PER_COMMIT) break;
      // What is refused to one is refused to all after it, also to those beyond this commit.
      const placement = placements[index] ?? refusal;
      const next = placement === undefined ? undefined : afterPlacement(replica.value, placement, view.revision);
      if (next === undefined) continue;
      transaction.updateReplica(replica, next);
      if (next.nodeId === '') told += 1;
      else placedOn.push(next.nodeId);
    }
    if (transaction.size === 0) return 'none';
    for (const nodeId of new Set(placedOn)) {
      // A node that was cordoned, changed or removed meanwhile may not fit any more.
      const node = view.node(nodeId);
      if (node !== undefined) transaction.require('node', nodeId, node);
    }
    if (placedOn.length > 0) transaction.event(placedEvent(batch, placedOn));
    if (told > 0 && refusal !== undefined) transaction.event(unplacedEvent(batch, replicas.length - placedOn.length, refusal));
    try {
      await state.commit(transaction);
    } catch (reason) {
      if (errorKindOf(reason) === 'conflict') return 'conflict';
      throw reason;
    }
    this.deps.log.info('replicas placed', {
      workloadId: batch.workload.uid,
      placed: placedOn.length,
      unplaced: replicas.length - placedOn.length,
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

function placedEvent({ workload }: Batch, placedOn: readonly string[]) {
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
  };
}

function unplacedEvent({ workload }: Batch, count: number, refusal: Placement) {
  const why = refusal.placed ? '' : describeReasons(refusal.reasons);
  return {
    severity: Severity.WARNING,
    category: Category.SCHEDULING,
    reason: 'ReplicasUnplaced',
    message: `no node fits ${count} ${count === 1 ? 'replica' : 'replicas'}: ${why}`,
    namespace: workload.namespace,
    workload: workload.name,
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
  if (kind === 'node') return true;
  if (kind !== 'replica') return false;
  const [was, is] = [before as ReplicaRecord | undefined, after as ReplicaRecord | undefined];
  if (was === undefined || is === undefined) return true;
  return was.nodeId !== is.nodeId || was.desiredRunning !== is.desiredRunning || holdsResources(was) !== holdsResources(is);
}
