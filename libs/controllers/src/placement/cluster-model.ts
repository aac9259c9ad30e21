import { toNodeId, toReplicaId } from '@cloudless/base';
import type { WorkloadSpec } from '@cloudless/api';
import type { NodeRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  holdsResources,
  type ClusterState,
  type ClusterView,
  type RecordChange,
} from '@cloudless/cluster-state';
import type { Cluster, ReplicaOnNode } from '@cloudless/scheduler';
import type { NodeDirectory } from '../node/node-directory.js';
import { isNominated } from '../preemption/nominations.js';
import { toReplicaOnNode, toReservation, toSchedulerNode } from './scheduler-input.js';

export interface ClusterModelDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  /**
   * An empty model. Only this class may write to the model, and the placer, which reserves what it
   * is about to commit, and restores what it changes for the time of a decision.
   */
  readonly cluster: Cluster;
  /**
   * Records that the placer is about to commit, and whose placements it has reserved. Default: none.
   */
  readonly recordsBeingPlaced?: Pick<ReadonlySet<ReplicaRecord>, 'has'>;
}

/**
 * Keeps the scheduler's model up to date with the state. A committed placement is reserved before
 * the commit resolves, so two placements never reserve the same resources.
 */
export class ClusterModel {
  private readonly unsubscribes: (() => void)[];

  constructor(private readonly deps: ClusterModelDeps) {
    const view = deps.state.view();
    for (const node of view.nodes()) this.upsertNode(node.value);
    addAllReservations(deps.cluster, view);
    this.unsubscribes = [
      deps.state.subscribe((changes) => this.apply(changes)),
      deps.nodes.subscribe((nodeId) => this.refreshNode(nodeId)),
    ];
  }

  close(): void {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
  }

  private apply(changes: readonly RecordChange[]): void {
    const view = this.deps.state.view();
    for (const { kind, id, before, after } of changes) {
      if (kind === 'node') {
        if (after === undefined) this.deps.cluster.removeNode(toNodeId(id));
        else this.upsertNode(after);
      } else if (kind === 'replica') {
        if (changesReservation(before, after) && !this.isReservedAlready(after))
          refreshReservation(this.deps.cluster, view, (after ?? before)?.id ?? '');
      }
    }
  }

  private isReservedAlready(after: ReplicaRecord | undefined): boolean {
    return after !== undefined && this.deps.recordsBeingPlaced?.has(after) === true;
  }

  private refreshNode(nodeId: string): void {
    const node = this.deps.state.view().node(nodeId);
    if (node !== undefined) this.upsertNode(node.value);
  }

  private upsertNode(node: NodeRecord): void {
    this.deps.cluster.upsertNode(toSchedulerNode(node, this.deps.nodes.status(node.id)));
  }
}

/**
 * Sets the reservation of a replica to what its record says: none for a replica that holds no
 * resources or has no record.
 */
export function refreshReservation(
  cluster: Pick<Cluster, 'reserve' | 'release'>,
  view: Pick<ClusterView, 'replica' | 'workload' | 'version'>,
  replicaId: string,
): void {
  const replica = view.replica(replicaId)?.value;
  cluster.release(toReplicaId(replicaId));
  if (replica !== undefined) addReservation(cluster, view, replica);
}

/**
 * Reserves nodes for replicas of one template, whose placement is about to be committed. Their
 * reservations differ in the replica and the node alone.
 */
export function reservePlacements(
  cluster: Pick<Cluster, 'reserveAll'>,
  { workload, template }: { readonly workload: WorkloadRecord; readonly template: WorkloadSpec },
  placed: readonly ReplicaOnNode[],
): void {
  const [first] = placed;
  if (first === undefined) return;
  const { replicaId: id, nodeId } = first;
  const replica = { id, uid: workload.uid, nodeId, nominatedNodeId: '', desiredRunning: true };
  cluster.reserveAll(toReservation(workload, replica, template), placed);
}

/**
 * Adds the reservations of all replicas to a model without any: those of one template together,
 * because the view lists the replicas of a workload one after the other.
 */
function addAllReservations(
  cluster: Pick<Cluster, 'reserveAll'>,
  view: Pick<ClusterView, 'replicas' | 'workload' | 'version'>,
): void {
  let first: ReplicaRecord | undefined;
  let batch: ReplicaOnNode[] = [];
  const flush = (): void => {
    const workload = first && view.workload(first.uid);
    const template = first && view.version(first.uid, first.version)?.template;
    if (first === undefined || workload === undefined || template === undefined) return;
    cluster.reserveAll(toReservation(workload.value, first, template), batch);
  };
  for (const { value } of view.replicas()) {
    if (!isReserved(value)) continue;
    if (first === undefined || !hasSameReservation(first, value) || batch.length >= MAX_BATCH) {
      flush();
      first = value;
      batch = [];
    }
    batch.push(toReplicaOnNode(value));
  }
  flush();
}

/** Replicas in one call of the scheduler, so that the list of a large workload stays short. */
const MAX_BATCH = 1_000;

/** Returns true when reservations of two replicas differ only in replica and node. */
function hasSameReservation(a: ReplicaRecord, b: ReplicaRecord): boolean {
  return a.uid === b.uid && a.version === b.version && a.desiredRunning === b.desiredRunning;
}

/** Adds the reservation of a replica that has none, if its record says that it holds resources. */
function addReservation(
  cluster: Pick<Cluster, 'reserve'>,
  view: Pick<ClusterView, 'workload' | 'version'>,
  replica: ReplicaRecord,
): void {
  if (!isReserved(replica)) return;
  const workload = view.workload(replica.uid);
  const template = view.version(replica.uid, replica.version)?.template;
  if (workload === undefined || template === undefined) return;
  cluster.reserve(toReservation(workload.value, replica, template));
}

/**
 * Returns false for a change of the status alone, as most changes of replicas are, and for replicas
 * that wait for a node: `PlacementWriter` gives back what was reserved for them and not committed.
 */
function changesReservation(
  before: ReplicaRecord | undefined,
  after: ReplicaRecord | undefined,
): boolean {
  const wasReserved = before !== undefined && isReserved(before);
  const isNowReserved = after !== undefined && isReserved(after);
  // Also a replica that has ended with a node that the view did not show before releases the node.
  if (!wasReserved || !isNowReserved)
    return wasReserved !== isNowReserved || (before?.nodeId ?? '') !== (after?.nodeId ?? '');
  return (
    before.nodeId !== after.nodeId ||
    before.nominatedNodeId !== after.nominatedNodeId ||
    before.desiredRunning !== after.desiredRunning
  );
}

/** Returns true for a replica that holds resources, or for which resources are held on a node. */
export function isReserved(replica: ReplicaRecord): boolean {
  return holdsResources(replica) || isNominated(replica);
}
