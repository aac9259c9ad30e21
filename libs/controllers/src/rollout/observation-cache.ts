import type { ReplicaRecord } from '@cloudless/api/store';
import type { RolloutReplica } from '@cloudless/rollout';
import { ChangeLog } from '../common/change-log.js';

/**
 * Most observations that are kept, about 150 bytes each: enough for some large workloads that change
 * at the same time. Workloads beyond that are observed as a whole in each pass.
 */
const MAX_KEPT = 65_536;
/**
 * Observations without a use after which those of a workload are dropped for another workload: four
 * times as many as are kept. While more workloads change than can be kept, those that are kept stay,
 * because replacing them in each pass would find none of them again; a workload that waits has no
 * passes, and makes room.
 */
const MAX_OBSERVATIONS_UNUSED = 4 * MAX_KEPT;

/** Observations of one workload, in the order of its replicas. */
interface KeptObservations {
  /** Observations of all workloads when the last pass over this workload ended. */
  readonly observedUntil: number;
  readonly minReadyMs: number;
  /** Changes of node records, and of the liveness of nodes, until the observations. */
  readonly nodeChanges: number;
  readonly livenessChanges: number;
  readonly records: readonly ReplicaRecord[];
  readonly observations: readonly RolloutReplica[];
  /** See {@link Observer.changing}. */
  readonly changing: ReadonlySet<RolloutReplica>;
}

/** Observes the replicas of one workload at one moment. */
export interface Observer {
  observe(replica: ReplicaRecord): RolloutReplica;
  /**
   * The observations that change although the record and the node of the replica stay the same. Few
   * do, so an observation needs no mark of its own.
   */
  readonly changing: ReadonlySet<RolloutReplica>;
}

/**
 * Observations of replicas that neither time nor anything but their record or their node changes, so
 * that a pass over a large workload observes only the replicas that have changed since its last pass.
 * Only workloads that are being changed keep observations.
 */
export class ObservationCache {
  /** The workloads with observations, the least recently used first. */
  private readonly byWorkload = new Map<string, KeptObservations>();
  private count = 0;
  /** Observations of all workloads so far, kept or not. */
  private observed = 0;
  private readonly nodeRecords = new ChangeLog();

  /** @param liveness - The changes of the liveness of nodes, which have happened when logged. */
  constructor(private readonly liveness: Pick<ChangeLog, 'count' | 'isUnchangedSince'>) {}

  /** Number of observations that are kept. */
  get size(): number {
    return this.count;
  }

  /**
   * Notes that the record of a node has changed. Call this method before the next pass over any
   * workload.
   */
  recordNodeChange(nodeId: string): void {
    this.nodeRecords.record(nodeId);
  }

  /** Drops the observations of a workload. */
  forget(uid: string): void {
    const kept = this.byWorkload.get(uid);
    if (kept === undefined) return;
    this.count -= kept.records.length;
    this.byWorkload.delete(uid);
  }

  /**
   * Observes replicas of a workload.
   * @param replicas - In ascending order of their sequence numbers.
   */
  observe(
    uid: string,
    minReadyMs: number,
    replicas: readonly ReplicaRecord[],
    observer: Observer,
  ): readonly RolloutReplica[] {
    const former = this.byWorkload.get(uid);
    const kept = former?.minReadyMs === minReadyMs ? former : undefined;
    let next = 0;
    const observations = replicas.map((replica) => {
      if (kept === undefined) return observer.observe(replica);
      next = findPosition(kept.records, next, replica);
      const known = kept.records[next] === replica ? kept.observations[next] : undefined;
      return known !== undefined &&
        !kept.changing.has(known) &&
        this.isCurrent(kept, replica.nodeId)
        ? known
        : observer.observe(replica);
    });
    const { changing } = observer;
    this.keep(uid, { minReadyMs, records: replicas, observations, changing });
    return observations;
  }

  /** Returns true when the node of a replica is unchanged since the replica was observed. */
  private isCurrent(kept: KeptObservations, nodeId: string): boolean {
    return (
      this.nodeRecords.isUnchangedSince(nodeId, kept.nodeChanges) &&
      this.liveness.isUnchangedSince(nodeId, kept.livenessChanges)
    );
  }

  private keep(
    uid: string,
    kept: Pick<KeptObservations, 'minReadyMs' | 'records' | 'observations' | 'changing'>,
  ): void {
    this.forget(uid);
    this.observed += kept.records.length;
    if (!this.makeRoom(kept.records.length)) return;
    this.byWorkload.set(uid, {
      ...kept,
      observedUntil: this.observed,
      nodeChanges: this.nodeRecords.count,
      livenessChanges: this.liveness.count,
    });
    this.count += kept.records.length;
  }

  /** @returns False when the observations that are kept leave no room for as many more. */
  private makeRoom(observations: number): boolean {
    if (observations > MAX_KEPT) return false;
    for (const [uid, { observedUntil }] of this.byWorkload) {
      if (this.count + observations <= MAX_KEPT) return true;
      if (this.observed - observedUntil <= MAX_OBSERVATIONS_UNUSED) return false;
      this.forget(uid);
    }
    return true;
  }
}

/**
 * Returns the position of the record of a replica, which may have changed, from `start` on; the
 * position of a later replica, or the end, when there is none.
 */
function findPosition(
  records: readonly ReplicaRecord[],
  start: number,
  { id, sequence }: ReplicaRecord,
): number {
  let at = start;
  for (; at < records.length; at += 1) {
    const record = records[at];
    if (record === undefined || record.id === id || record.sequence > sequence) break;
  }
  return at;
}
