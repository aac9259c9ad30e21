import { clone, create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import {
  ControlRecordSchema,
  type ControlRecord,
  type ReplicaRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { sleep, type Clock, type StopSignal, type WorkResult } from '@cloudless/base';
import {
  isLive,
  isTombstone,
  toCanonicalVersion,
  type ClusterState,
  type Stored,
} from '@cloudless/cluster-state';
import { commitOrReconcileAgain, type commitPart } from '../common/commit.js';
import { toMs } from '../common/duration.js';
import { getSpecWithDefaults } from '../common/spec-defaults.js';
import { ReplicaObserver, type ReplicaSources } from '../rollout/replica-observer.js';
import { stopReplica } from './apply-steps.js';
import { deleteReplicaRecord } from './retire-ended-replicas.js';
import { addStopEvents } from './step-events.js';
import { MAX_REPLICA_WRITES, type WorkloadPass } from './workload-pass.js';
import { addWorkloadRemoval } from './workload-removal.js';

export interface WorkloadDeletionDeps {
  readonly state: ClusterState;
  readonly nodes: ReplicaSources['nodes'];
  readonly readiness: ReplicaSources['readiness'];
  readonly clock: Clock;
  /** Commits one transaction of a pass. */
  readonly commit: (pass: WorkloadPass) => ReturnType<typeof commitPart>;
  /** Ends a pass between two commits. */
  readonly signal: StopSignal;
  /** Replicas after which other work runs. Default: 10 000 observations take some 20 ms. */
  readonly replicasPerTurn?: number;
}

const REPLICAS_PER_TURN = 10_000;

/**
 * Deletes a workload: stops every replica, deletes the records of replicas that wait for a node or
 * have ended, and deletes the workload when only tombstones are left. Nothing has to be decided, as
 * no replica stays; so one pass reads each replica twice, whatever their number, and commits up to
 * {@link MAX_REPLICA_WRITES} of them at a time.
 */
export class WorkloadDeletion {
  private readonly tombstones = new Map<string, Stored<ReplicaRecord>>();
  private readonly source: Iterator<Stored<ReplicaRecord>>;
  /** Replicas of a commit that met a conflict, whose records have to be read again. */
  private retried: string[] = [];
  /** Control record as of the last commit. */
  private control: Stored<ControlRecord>;
  /** True when a replica has been seen whose stop is not confirmed. */
  private hasLeaving = false;
  /**
   * Available replicas that are not ordered to stop, for the events. Replicas that this pass has not
   * reached count as at its begin.
   */
  private available = 0;
  private read = 0;
  private writeCount = 0;

  /** @param start - A pass over the workload, without replicas. */
  constructor(
    private readonly deps: WorkloadDeletionDeps,
    private readonly start: WorkloadPass,
  ) {
    this.control = start.control;
    // The iteration follows later changes; the commits of this pass change what was read before.
    this.source = deps.state.view().replicasOf(this.uid)[Symbol.iterator]();
  }

  /** Number of writes that were committed. */
  get writes(): number {
    return this.writeCount;
  }

  /** Runs the pass. Call once. */
  async run(): Promise<WorkResult> {
    const { state, clock, signal } = this.deps;
    this.available = await this.countAvailable();
    while (!signal.aborted) {
      const pass = this.createPass();
      const replicas = await this.takeReplicas(pass);
      if (pass.transaction.size === 0 && !this.hasControlChanged(pass)) {
        if (this.hasLeaving) return { kind: 'done' };
        // The workload stays as long as any of its replicas does.
        if (this.hasMoreReplicas()) return { kind: 'again' };
        const tombstones = [...this.tombstones.values()];
        addWorkloadRemoval({ ...pass, replicas: tombstones }, state.view(), clock.wallTime());
        return commitOrReconcileAgain(state, pass.transaction);
      }
      const result = await this.deps.commit(pass);
      if (result.kind === 'committed') {
        this.writeCount += pass.transaction.size;
        this.control = { value: pass.nextControl, revision: result.revision };
      } else if (result.kind === 'again' && this.isCurrent(pass)) {
        const ids = replicas.map(({ value }) => value.id);
        // A turn may have ended within the replicas of an earlier conflict.
        this.retried = [...ids, ...this.retried];
        this.available += this.countAvailableOf(ids);
      } else return result;
    }
    return { kind: 'done' };
  }

  private hasMoreReplicas(): boolean {
    for (const { value } of this.deps.state.view().replicasOf(this.uid))
      if (!isTombstone(value)) return true;
    return false;
  }

  private get uid(): string {
    return this.start.workload.value.uid;
  }

  private createPass(): WorkloadPass {
    const { generation } = this.start.workload.value;
    const nextControl = clone(ControlRecordSchema, this.control.value);
    // A change of the spec resets the back-off of every slot.
    if (nextControl.observedGeneration !== generation) nextControl.backoff = {};
    nextControl.observedGeneration = generation;
    const transaction = this.deps.state.transaction();
    return { ...this.start, control: this.control, nextControl, transaction };
  }

  private hasControlChanged({ control, nextControl }: WorkloadPass): boolean {
    return control.value.observedGeneration !== nextControl.observedGeneration;
  }

  /** Returns true while workload and control record are those of a pass. */
  private isCurrent({ workload, control }: WorkloadPass): boolean {
    const view = this.deps.state.view();
    return (
      view.workload(this.uid)?.revision === workload.revision &&
      view.control(this.uid)?.revision === control.revision
    );
  }

  /**
   * Adds the next replicas to the transaction of a pass, with the events of those that stop.
   * @returns The replicas that the transaction writes; none at the end.
   */
  private async takeReplicas(pass: WorkloadPass): Promise<readonly Stored<ReplicaRecord>[]> {
    const { revision } = this.deps.state.view();
    const taken: Stored<ReplicaRecord>[] = [];
    const stopped: ReplicaRecord[] = [];
    while (taken.length < MAX_REPLICA_WRITES) {
      const replica = this.next();
      if (replica === undefined) break;
      const { value } = replica;
      if (isTombstone(value)) this.tombstones.set(value.id, replica);
      else if (!isLive(value)) {
        deleteReplicaRecord(pass, replica);
        taken.push(replica);
      } else if (value.desiredRunning) {
        if (value.nodeId !== '') this.hasLeaving = true;
        stopReplica(pass, replica, revision);
        taken.push(replica);
        stopped.push(value);
      } else this.hasLeaving = true;
      if (!this.isTurnOver()) continue;
      // A transaction with writes is committed before the pause, while its records are current.
      if (taken.length > 0) break;
      await this.yieldTurn();
    }
    if (stopped.length > 0) this.addEvents(pass, stopped);
    return taken;
  }

  private next(): Stored<ReplicaRecord> | undefined {
    const view = this.deps.state.view();
    for (let id = this.retried.shift(); id !== undefined; id = this.retried.shift()) {
      const replica = view.replica(id);
      if (replica !== undefined) return replica;
    }
    const next = this.source.next();
    return next.done === true ? undefined : next.value;
  }

  private addEvents(pass: WorkloadPass, stopped: readonly ReplicaRecord[]): void {
    const { value } = pass.workload;
    const replicas = this.createObserver().observeAll(stopped);
    const stoppedAvailable = replicas.filter(({ available }) => available).length;
    this.available = Math.max(0, this.available - stoppedAvailable);
    const version = toCanonicalVersion(pass.view, value.uid, value.version);
    addStopEvents(pass, { want: 0, minAvailable: 0, version, replicas }, stopped, this.available);
  }

  /** Counts the available replicas that are not ordered to stop. */
  private async countAvailable(): Promise<number> {
    const observer = this.createObserver();
    let count = 0;
    for (const { value } of this.deps.state.view().replicasOf(this.uid)) {
      if (countsAsAvailable(observer, value)) count += 1;
      if (this.isTurnOver()) await this.yieldTurn();
    }
    return count;
  }

  private countAvailableOf(ids: readonly string[]): number {
    const view = this.deps.state.view();
    const observer = this.createObserver();
    const replicas = ids.flatMap((id) => view.replica(id)?.value ?? []);
    return replicas.filter((replica) => countsAsAvailable(observer, replica)).length;
  }

  private createObserver(): ReplicaObserver {
    const { state, nodes, readiness, clock } = this.deps;
    const minReadyMs = toMinReadyMs(this.start.workload.value);
    return new ReplicaObserver({ view: state.view(), nodes, readiness }, this.uid, {
      minReadyMs,
      nowMs: clock.wallTime(),
    });
  }

  /** Counts a replica; true after the replicas of a turn. */
  private isTurnOver(): boolean {
    this.read += 1;
    return this.read % (this.deps.replicasPerTurn ?? REPLICAS_PER_TURN) === 0;
  }

  /** Lets other work run. */
  private async yieldTurn(): Promise<void> {
    await sleep(this.deps.clock, 0, this.deps.signal).catch(() => undefined);
  }
}

/** Returns true for an available replica that is not ordered to stop. */
function countsAsAvailable(observer: ReplicaObserver, replica: ReplicaRecord): boolean {
  if (!replica.ready || !replica.desiredRunning || replica.lost || !isLive(replica)) return false;
  return observer.observeAll([replica])[0]?.available === true;
}

const NO_SPEC = create(WorkloadSpecSchema);

function toMinReadyMs({ spec = NO_SPEC }: WorkloadRecord): number {
  return toMs(getSpecWithDefaults(spec).rollout?.minReadyDuration);
}
