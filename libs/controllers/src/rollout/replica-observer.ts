import type { ReplicaRecord } from '@cloudless/api/store';
import { toReplicaId } from '@cloudless/base';
import { toCanonicalVersion, type ClusterView } from '@cloudless/cluster-state';
import type { RolloutReplica } from '@cloudless/rollout';
import { findEviction, findRequestedEviction } from '../drain/eviction.js';
import type { NodeDirectory } from '../node/node-directory.js';
import { WAITS_FOR_NODE } from '../placement/wait-reason.js';
import type { ObservationCache, Observer } from './observation-cache.js';
import type { ReadinessTracker } from './readiness-tracker.js';

export interface ReplicaSources {
  readonly view: Pick<ClusterView, 'node' | 'version' | 'control'>;
  readonly nodes: Pick<NodeDirectory, 'isAlive'>;
  readonly readiness: Pick<ReadinessTracker, 'readyForMs'>;
}

/**
 * Converts the live replicas of one workload to the input of the rollout planner, at one moment. A
 * pass converts every replica of the workload, so facts that replicas share are found once.
 */
export class ReplicaObserver implements Observer {
  readonly changing = new Set<RolloutReplica>();
  /** The canonical version of each version. */
  private readonly canonical = new Map<number, number>();
  private readonly requested: ReturnType<typeof findRequestedEviction>;
  private earliestMs = Number.POSITIVE_INFINITY;

  /**
   * @param times - `minReadyMs`: for how long an available replica is ready; `nowMs`: wall-clock
   *   milliseconds.
   */
  constructor(
    private readonly sources: ReplicaSources,
    private readonly uid: string,
    private readonly times: { readonly minReadyMs: number; readonly nowMs: number },
  ) {
    this.requested = findRequestedEviction(sources.view.control(uid)?.value, times.nowMs);
  }

  /**
   * Milliseconds until time alone changes one of the replicas: the next ready replica becomes
   * available, or an eviction changes; undefined when neither is pending.
   */
  get recheckInMs(): number | undefined {
    return Number.isFinite(this.earliestMs) ? this.earliestMs : undefined;
  }

  /**
   * Observes the live replicas of the workload, which are in ascending order of their sequence
   * numbers.
   * @param cache - Keeps what does not change until the next pass. Default: observes all replicas.
   */
  observeAll(
    replicas: readonly ReplicaRecord[],
    cache?: ObservationCache,
  ): readonly RolloutReplica[] {
    // A request ends by time alone, for all replicas that it names.
    if (cache === undefined || this.requested.replicaIds.size > 0)
      return replicas.map((replica) => this.observe(replica));
    return cache.observe(this.uid, this.times.minReadyMs, replicas, this);
  }

  observe(replica: ReplicaRecord): RolloutReplica {
    const { sources, requested } = this;
    const { minReadyMs, nowMs } = this.times;
    const { id, nodeId, desiredRunning } = replica;
    const readyForMs = sources.readiness.readyForMs(replica);
    const isAvailable = readyForMs !== undefined && readyForMs >= minReadyMs;
    if (readyForMs !== undefined && !isAvailable) this.recheckIn(minReadyMs - readyForMs);
    const eviction = findEviction(sources.view, replica, nowMs);
    if (eviction.changesInMs !== undefined) this.recheckIn(eviction.changesInMs);
    const isRequested = requested.replicaIds.size > 0 && requested.replicaIds.has(id);
    if (isRequested) this.recheckIn(requested.endsInMs);
    // A replica that is ready for some time is on a node with a live session.
    const onSilentNode =
      readyForMs === undefined && nodeId !== '' && !sources.nodes.isAlive(nodeId);
    const found: RolloutReplica = {
      id: toReplicaId(id),
      version: this.toCanonical(replica.version),
      // A stopping replica that still serves counts as a part of the current batch.
      available: desiredRunning ? isAvailable : replica.ready,
      desired: desiredRunning ? 'running' : 'stopped',
      lost: replica.lost,
      draining: eviction.draining || isRequested,
      forced: eviction.forced,
      // A replica that is ready for less than min_ready_duration, or is on a silent node, may
      // serve, so it must not be stopped like an unready replica.
      notYetAvailable: readyForMs !== undefined || onSilentNode,
      onSilentNode,
      createdSequence: Number(replica.sequence),
      nodeId: nodeId === '' ? replica.onlyNodeId : nodeId,
    };
    const observed = isUnplaceable(replica) ? { ...found, unplaced: replica.reason } : found;
    const isWaiting = readyForMs !== undefined && !isAvailable;
    // The deadline of a drain and the end of a toleration change an eviction by time alone.
    const mayChange = eviction.draining || eviction.changesInMs !== undefined;
    if (isWaiting || mayChange || isRequested) this.changing.add(observed);
    return observed;
  }

  private toCanonical(version: number): number {
    const known = this.canonical.get(version);
    if (known !== undefined) return known;
    const canonical = toCanonicalVersion(this.sources.view, this.uid, version);
    this.canonical.set(version, canonical);
    return canonical;
  }

  private recheckIn(delayMs: number): void {
    if (delayMs < this.earliestMs) this.earliestMs = delayMs;
  }
}

/** Returns true when the placer has tried to place the replica and found no node. */
function isUnplaceable({ nodeId, reason }: ReplicaRecord): boolean {
  return nodeId === '' && reason !== '' && reason !== WAITS_FOR_NODE;
}
