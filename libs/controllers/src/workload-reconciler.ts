import { clone } from '@bufbuild/protobuf';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { ControlRecordSchema, type ReplicaRecord, type WorkloadRecord } from '@cloudless/api/store';
import {
  WorkQueue,
  logFailure,
  type Clock,
  noMeter,
  noTracer,
  type Log,
  type Meter,
  type Random,
  type Tracer,
  type WorkResult,
} from '@cloudless/base';
import {
  isLive,
  isTombstone,
  nameKeyId,
  versionKeyId,
  type ClusterState,
  type RecordChange,
  type Stored,
} from '@cloudless/cluster-state';
import { nextSteps } from '@cloudless/rollout';
import type { Cluster } from '@cloudless/scheduler';
import { changeOf } from './causes.js';
import { commitOrPlanAgain } from './commit.js';
import { followDisconnect } from './follow-disconnect.js';
import type { NodeDirectory } from './node-directory.js';
import type { Readiness } from './readiness.js';
import { toRolloutInput } from './rollout-input.js';
import { advancePass, pruneVersions, sameControl } from './rollout-progress.js';
import { isGlobal } from './seats.js';
import { settleEnded } from './settle-ended.js';
import { SlotBackoffs } from './slot-backoff.js';
import { decisionIdOf, noteSteps } from './step-events.js';
import { requireEvidence, takeSteps } from './take-steps.js';
import { MAX_PASS_WRITES, stillWanted, type WorkloadPass } from './workload-pass.js';

export interface WorkloadReconcilerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly readiness: Readiness;
  readonly cluster: Pick<Cluster, 'eligible'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
  readonly tracer?: Tracer;
}

/**
 * Reconciles workloads with their specs: creates and stops replicas as the rollout planner decides,
 * replaces failed replicas, and deletes workloads. Level-triggered: a pass may run at any time and
 * for any reason.
 */
export class WorkloadReconciler {
  private readonly queue: WorkQueue<string>;
  private readonly unsubscribes: (() => void)[];
  /**
   * Ids of workloads in mode GLOBAL. Any change of a node may add or remove a target of such a
   * workload.
   */
  private readonly globals = new Set<string>();

  constructor(private readonly deps: WorkloadReconcilerDeps) {
    this.queue = new WorkQueue<string>({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'workload' },
      handle: (uid) =>
        (deps.tracer ?? noTracer).follow(uid, 'reconcile workload', { workloadId: uid }, () =>
          this.reconcile(uid),
        ),
      onError: (uid, reason) =>
        logFailure(deps.log, 'reconcile failed', reason, { workloadId: uid }),
      backoff: { firstMs: 20, maxMs: 5_000, jitter: 0.2 },
      concurrency: 16,
    });
    this.wakeAll();
    this.unsubscribes = [
      deps.state.subscribe((changes) => this.wakeFor(changes)),
      deps.nodes.subscribe((nodeId) => this.wakeOn(nodeId)),
    ];
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    await this.queue.stop();
  }

  /**
   * Runs one pass over a workload. Safe to call at any time.
   * @returns `again` when the pass committed something and more may follow, `after` with the time
   *   of the next decision that depends on time alone, else `done`.
   */
  async reconcile(uid: string): Promise<WorkResult> {
    const { state, clock, readiness } = this.deps;
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (state.restored !== undefined) return { kind: 'done' };
    const view = state.view();
    const workload = view.workload(uid);
    const control = view.control(uid);
    const replicas = [...view.replicasOf(uid)].sort((a, b) =>
      Number(a.value.sequence - b.value.sequence),
    );
    if (workload === undefined || control === undefined) return this.dropEnded(replicas);
    const pass: WorkloadPass = {
      view,
      workload,
      control,
      replicas,
      evidence: view.evidence(uid) ?? 'absent',
      versions: view.versions(uid),
      transaction: state.transaction(),
      next: clone(ControlRecordSchema, control.value),
      deleting: workload.value.deletionRequestedAt !== undefined,
    };
    settleEnded(pass, new SlotBackoffs(pass.next, clock.wallTime()), (id) =>
      readiness.lastReadyForMs(id),
    );
    followDisconnect(pass, view.revision);
    if (pass.transaction.size > 0) return this.commit(pass);
    return this.advance(pass);
  }

  private wakeFor(changes: readonly RecordChange[]): void {
    for (const { kind, id, before, after } of changes) {
      if (kind === 'workload') this.noteMode(id, after as WorkloadRecord | undefined);
      if (kind === 'workload' || kind === 'control') this.queue.wake(id);
      else if (kind === 'replica') this.queue.wake(((after ?? before) as ReplicaRecord).uid);
      else if (kind === 'node') this.wakeOn(id);
      else if (kind === 'meta') this.wakeAll();
    }
  }

  private wakeAll(): void {
    const view = this.deps.state.view();
    for (const { value } of view.workloads()) {
      this.noteMode(value.uid, value);
      this.queue.wake(value.uid);
    }
    for (const { value } of view.replicas()) this.queue.wake(value.uid);
  }

  private wakeOn(nodeId: string): void {
    for (const { value } of this.deps.state.view().replicasOn(nodeId)) this.queue.wake(value.uid);
    for (const uid of this.globals) this.queue.wake(uid);
  }

  private noteMode(uid: string, workload: WorkloadRecord | undefined): void {
    if (isGlobal(workload?.spec)) this.globals.add(uid);
    else this.globals.delete(uid);
  }

  /**
   * Deletes the replica records of a deleted workload once the stop of each replica is confirmed.
   * Tombstones stay until their node confirms the stop.
   */
  private async dropEnded(replicas: readonly Stored<ReplicaRecord>[]): Promise<WorkResult> {
    const ended = replicas
      .filter(({ value }) => !isTombstone(value) && !isLive(value))
      .slice(0, MAX_PASS_WRITES);
    if (ended.length === 0) return { kind: 'done' };
    const transaction = this.deps.state.transaction();
    for (const replica of ended) transaction.deleteReplica(replica);
    return commitOrPlanAgain(this.deps.state, transaction);
  }

  private async advance(pass: WorkloadPass): Promise<WorkResult> {
    const { workload, deleting, next, transaction } = pass;
    const { state, nodes, readiness, cluster, clock } = this.deps;
    const view = state.view();
    // A change of the spec resets the back-off of every slot.
    if (next.observedGeneration !== workload.value.generation) next.backoff = {};
    if (deleting) next.observedGeneration = workload.value.generation;
    const values = pass.replicas.map(({ value }) => value);
    const wanted = deleting
      ? 0
      : stillWanted(view, workload.value, values, workload.value.spec?.replicas ?? 1);
    const now = { wallTimeMs: clock.wallTime(), revision: view.revision };
    const input = toRolloutInput(
      { view, nodes, readiness, cluster, clock },
      workload.value,
      values,
      wanted,
    );
    const { nextFreshMs } = input;
    const advance = deleting ? undefined : advancePass(pass, input.observed, now.wallTimeMs);
    const { observed, decision } = advance ?? {
      observed: input.observed,
      decision: nextSteps(input.observed),
    };
    if (deleting && decision.kind === 'converged') return this.removeWorkload(pass);
    const steps = decision.kind === 'steps' ? decision.steps : [];
    const { created, stopped, delayMs } = takeSteps(
      pass,
      steps,
      new SlotBackoffs(next, now.wallTimeMs),
      now,
    );
    noteSteps(pass, observed, { created, stopped });
    requireEvidence(pass, observed, steps);
    pruneVersions(pass, pass.versions);
    if (!sameControl(pass.control.value, next) || transaction.size > 0) return this.commit(pass);
    const dueMs = advance?.wakeAtMs === undefined ? undefined : advance.wakeAtMs - now.wallTimeMs;
    const wakeMs = Math.min(
      ...[nextFreshMs, delayMs, dueMs].map((ms) => ms ?? Number.POSITIVE_INFINITY),
    );
    return Number.isFinite(wakeMs) ? { kind: 'after', delayMs: wakeMs } : { kind: 'done' };
  }

  private async removeWorkload({
    workload,
    control,
    transaction,
    view,
    replicas,
  }: WorkloadPass): Promise<WorkResult> {
    const { uid, namespace, name } = workload.value;
    const versions = this.deps.state.view().versions(uid);
    for (const { version } of versions.slice(0, MAX_PASS_WRITES))
      transaction.delete('version', versionKeyId(uid, version));
    transaction.require('workload', uid, workload).require('control', uid, control);
    if (versions.length <= MAX_PASS_WRITES) {
      transaction
        .delete('workload', uid)
        .delete('control', uid)
        .delete('evidence', uid)
        .delete('name', nameKeyId(namespace, name));
      transaction.event({
        severity: Severity.INFO,
        category: Category.WORKLOAD,
        reason: 'WorkloadDeleted',
        ...describeRemoval({ namespace, name }, replicas),
        namespace,
        workload: name,
        causedBy: changeOf(view, workload.value),
      });
    }
    return commitOrPlanAgain(this.deps.state, transaction);
  }

  /**
   * Commits a pass. Every creation and every stop requires the control record to be unchanged and
   * rewrites it, so that all of them share one disruption budget.
   */
  private async commit(pass: WorkloadPass): Promise<WorkResult> {
    const { workload, control, transaction, next } = pass;
    const { uid, requestId } = workload.value;
    const { state, log } = this.deps;
    transaction
      .require('control', uid, control)
      .put('control', uid, next)
      .require('workload', uid, workload);
    const writes = transaction.size;
    // Same id as in the events of this pass: the revision of the view changes with the commit.
    const decisionId = decisionIdOf(pass);
    const result = await commitOrPlanAgain(state, transaction);
    const request = requestId === '' ? {} : { requestId };
    log.info('workload advanced', { workloadId: uid, writes, decisionId, ...request });
    return result;
  }
}

/**
 * Message and replica ids of the event of a deletion. The ids are those of replicas that may still
 * run on lost nodes.
 */
function describeRemoval(
  { namespace, name }: Pick<WorkloadRecord, 'namespace' | 'name'>,
  replicas: readonly Stored<ReplicaRecord>[],
): { readonly message: string; readonly replicaIds: string[] } {
  const left = replicas.map(({ value }) => value).filter(isTombstone);
  const gone = `workload ${namespace}/${name} is gone: every`;
  if (left.length === 0) return { message: `${gone} node has confirmed`, replicaIds: [] };
  const named = left.slice(0, MAX_NAMED).map(({ id, nodeId }) => `${id} on lost node ${nodeId}`);
  const more = left.length > MAX_NAMED ? ` and ${left.length - MAX_NAMED} more` : '';
  const count = left.length === 1 ? '1 replica' : `${left.length} replicas`;
  return {
    message: `${gone} reachable node has confirmed; ${count} may still run: ${named.join(', ')}${more}`,
    replicaIds: left.slice(0, MAX_IDS).map(({ id }) => id),
  };
}

/** Most replicas that the message names. */
const MAX_NAMED = 5;
/** Most replica ids in the event, so that the event stays small. */
const MAX_IDS = 1_000;
