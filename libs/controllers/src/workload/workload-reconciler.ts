import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  definedFields,
  type Clock,
  noTracer,
  type Log,
  type Meter,
  type Random,
  type Tracer,
  type WorkQueue,
  type WorkResult,
} from '@cloudless/base';
import { type ClusterState, type RecordChange, type Stored } from '@cloudless/cluster-state';
import { mayLeaveOutWaiting } from '@cloudless/rollout';
import type { Cluster } from '@cloudless/scheduler';
import { commitPart } from '../common/commit.js';
import { isSameControl } from '../common/control-copy.js';
import { createReconcileQueue } from '../common/reconcile-queue.js';
import type { NodeDirectory } from '../node/node-directory.js';
import type { NewReplicaPlacer, PlacedCreation } from '../placement/new-replicas.js';
import type { ReadinessTracker } from '../rollout/readiness-tracker.js';
import type { RolloutGates } from '../rollout/gate/rollout-gates.js';
import { ObservationCache } from '../rollout/observation-cache.js';
import { toRolloutInput } from '../rollout/rollout-input.js';
import { advancePass, pruneVersions } from '../rollout/rollout-progress.js';
import { isGlobal } from '../rollout/global-targets.js';
import { countStillWanted } from '../replica/finished.js';
import { requireReadinessGuard, StepQueue } from './apply-steps.js';
import { commitSteps, type DecidedSteps } from './commit-steps.js';
import { StepEvents } from './step-events.js';
import { SlotBackoffs } from './slot-backoff.js';
import { PassPacing } from './pass-pacing.js';
import { WorkloadDeletion } from './delete-workload.js';
import { deleteEndedReplicas } from './workload-removal.js';
import { listBySequence } from './list-by-sequence.js';
import { retireEndedReplicas } from './retire-ended-replicas.js';
import { ManyWaiting, type CountedWaiting } from './many-waiting.js';
import { StartingWorkloads, keepsCreations } from './starting-workloads.js';
import { syncDisconnectPolicy } from './sync-disconnect-policy.js';
import { createWorkloadPass, type WorkloadPass } from './workload-pass.js';

export interface WorkloadReconcilerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly readiness: ReadinessTracker;
  /** Evaluates the gates of canary steps. Default: gates have no result, so they never pass. */
  readonly gates?: Pick<RolloutGates, 'evaluate' | 'forget'>;
  readonly cluster: Pick<Cluster, 'eligibleNodes'>;
  /**
   * Chooses the nodes of new replicas in the transaction that creates them. Default: the placer
   * chooses them after the creation.
   */
  readonly newReplicas?: Pick<NewReplicaPlacer, 'choose'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
  readonly tracer?: Tracer;
  /**
   * Least number of waiting replicas at which a workload's waiting replicas are counted instead of
   * read. Default 10 000.
   */
  readonly minCountedWaiting?: number;
  /** Replicas that a deletion reads before other work runs. Default 10 000. */
  readonly replicasPerTurn?: number;
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
  private readonly globalWorkloads = new Set<string>();
  private readonly pacing: PassPacing;
  private readonly starting: StartingWorkloads;
  private readonly observations: ObservationCache;
  /** Control records that passes have written. The pass itself continues after their commit. */
  private readonly ownControls = new WeakSet<ControlRecord>();
  /** Workloads whose last pass has committed every step of its decision. */
  private readonly finished = new Set<string>();
  /** Workloads with a change, since their last decision, that a decision depends on. */
  private readonly changed = new Set<string>();
  private readonly manyWaiting: ManyWaiting;
  private readonly closing = new AbortController();

  constructor(private readonly deps: WorkloadReconcilerDeps) {
    this.pacing = new PassPacing(deps.clock);
    this.starting = new StartingWorkloads(deps.clock);
    this.manyWaiting = new ManyWaiting(deps.minCountedWaiting);
    this.observations = new ObservationCache(deps.nodes.liveness);
    this.queue = createReconcileQueue(deps, {
      loop: 'workload',
      keyField: 'workloadId',
      failure: 'reconcile failed',
      handle: (uid) =>
        (deps.tracer ?? noTracer).follow(uid, 'reconcile workload', { workloadId: uid }, () =>
          this.runPass(uid),
        ),
    });
    this.wakeAll();
    this.unsubscribes = [
      deps.state.subscribe((changes) => this.wakeFor(changes)),
      deps.nodes.subscribe((nodeId) => this.wakeForNode(nodeId)),
    ];
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    this.closing.abort();
    await this.queue.stop();
  }

  /**
   * Runs one pass over a workload. Safe to call at any time.
   * @returns `again` when the pass committed something and more may follow, `after` with the time
   *   of the next decision that depends on time alone, else `done`.
   */
  async reconcile(uid: string): Promise<WorkResult> {
    return this.reconcileWith(uid, this.manyWaiting.get(uid));
  }

  /** @param counted - Waiting replicas to count only, if the decision allows that. */
  private async reconcileWith(
    uid: string,
    counted: CountedWaiting | undefined,
  ): Promise<WorkResult> {
    const { state, clock, readiness } = this.deps;
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (state.storeRolledBack !== undefined) return { kind: 'done' };
    this.starting.delete(uid);
    this.changed.delete(uid);
    const view = state.view();
    const workload = view.workload(uid);
    const control = view.control(uid);
    if (workload === undefined || control === undefined) {
      this.deps.gates?.forget(uid);
      this.observations.forget(uid);
      this.manyWaiting.forget(uid);
      return deleteEndedReplicas(state, listBySequence(view.replicasOf(uid)));
    }
    const deleting = workload.value.deletionRequestedAt !== undefined;
    const waiting =
      counted?.mayReplace(workload.value, control.value) === true ? counted : undefined;
    const replicas = deleting ? [] : this.listReplicas(uid, waiting);
    const subject = { workload, control, replicas, deleting, ...definedFields({ waiting }) };
    const pass = createWorkloadPass(state, subject);
    if (deleting) return this.deleteWorkload(pass);
    retireEndedReplicas(pass, new SlotBackoffs(pass.nextControl, clock.wallTime()), (id) =>
      readiness.lastReadyForMs(id),
    );
    syncDisconnectPolicy(pass);
    if (pass.transaction.size > 0) return this.commit(pass);
    return this.advance(pass);
  }

  /** @param waiting - Waiting replicas to leave out. */
  private listReplicas(
    uid: string,
    waiting: CountedWaiting | undefined,
  ): readonly Stored<ReplicaRecord>[] {
    const view = this.deps.state.view();
    if (waiting !== undefined)
      return listBySequence([...waiting.otherIds].flatMap((id) => view.replica(id) ?? []));
    const replicas = listBySequence(view.replicasOf(uid));
    this.manyWaiting.begin(uid, replicas);
    return replicas;
  }

  /** Runs one pass over a workload, or none while its passes pause or are put off. */
  private async runPass(uid: string): Promise<WorkResult> {
    const waitMs = Math.max(this.pacing.getWaitMs(uid), this.starting.getWaitMs(uid));
    if (waitMs > 0) return { kind: 'after', delayMs: waitMs };
    const startedAtMs = this.deps.clock.now();
    const running = this.reconcile(uid);
    // A pass is synchronous until its first commit.
    const durationMs = this.deps.clock.now() - startedAtMs;
    const result = await running;
    const hasWorkLeft = result.kind === 'again' && !this.finished.delete(uid);
    if (!hasWorkLeft) this.pacing.recordPass(uid, durationMs);
    return result;
  }

  private wakeFor(changes: readonly RecordChange[]): void {
    // A pass may begin with the first wake, and the view shows all changes.
    for (const { kind, id, before, after } of changes) {
      if (kind === 'node') this.observations.recordNodeChange(id);
      // The condition is a guard: a version keeps its template. Later changes only mark it as rolled
      // out, and must not drop the observations.
      else if (kind === 'version' && before?.sameAs !== after?.sameAs)
        this.observations.forget(id.slice(0, id.indexOf('/')));
    }
    for (const { kind, id, before, after } of changes) {
      if (kind === 'replica') this.wakeForReplica(before, after);
      else if (kind === 'workload') {
        this.trackMode(id, after);
        this.wakeNow(id);
      } else if (kind === 'control') {
        if (after === undefined || !this.ownControls.has(after)) this.wakeNow(id);
      } else if (kind === 'node') this.wakeForNode(id);
      else if (kind === 'meta') this.wakeAll();
    }
  }

  private wakeForReplica(
    before: ReplicaRecord | undefined,
    after: ReplicaRecord | undefined,
  ): void {
    const uid = (after ?? before)?.uid ?? '';
    if (before !== undefined && !keepsCreations(before, after)) this.changed.add(uid);
    this.manyWaiting.applyChange(uid, before, after);
    if (this.starting.applyChange(uid, before, after)) this.wake(uid);
  }

  private wakeNow(uid: string): void {
    this.pacing.skipPause(uid);
    this.wake(uid);
  }

  /** Wakes a pass that is not put off. */
  private wake(uid: string): void {
    this.starting.delete(uid);
    this.queue.wakeWithin(uid, this.pacing.getWaitMs(uid));
  }

  private wakeAll(): void {
    const view = this.deps.state.view();
    const uids = new Set<string>();
    for (const { value } of view.workloads()) {
      this.trackMode(value.uid, value);
      uids.add(value.uid);
    }
    for (const { value } of view.replicas()) uids.add(value.uid);
    for (const uid of uids) this.wakeNow(uid);
  }

  private wakeForNode(nodeId: string): void {
    const uids = new Set(this.globalWorkloads);
    for (const { value } of this.deps.state.view().replicasOn(nodeId)) uids.add(value.uid);
    for (const uid of uids) {
      this.changed.add(uid);
      this.wake(uid);
    }
  }

  private trackMode(uid: string, workload: WorkloadRecord | undefined): void {
    if (isGlobal(workload?.spec)) this.globalWorkloads.add(uid);
    else this.globalWorkloads.delete(uid);
  }

  /** Stops and deletes everything of a workload whose deletion a user has requested. */
  private async deleteWorkload(pass: WorkloadPass): Promise<WorkResult> {
    this.observations.forget(pass.workload.value.uid);
    const deletion = new WorkloadDeletion(
      { ...this.deps, commit: (part) => this.commitPass(part), signal: this.closing.signal },
      pass,
    );
    try {
      return await deletion.run();
    } finally {
      if (deletion.writes > 0) this.logAdvance(pass, deletion.writes);
    }
  }

  private async advance(pass: WorkloadPass): Promise<WorkResult> {
    const { workload, nextControl, transaction } = pass;
    const { state, nodes, readiness, cluster, clock } = this.deps;
    const view = state.view();
    // A change of the spec resets the back-off of every slot.
    if (nextControl.observedGeneration !== workload.value.generation) nextControl.backoff = {};
    const replicas = pass.replicas.map(({ value }) => value);
    const wantedReplicas = countStillWanted(
      view,
      workload.value,
      replicas,
      workload.value.spec?.replicas ?? 1,
    );
    const now = { wallTimeMs: clock.wallTime(), revision: view.revision };
    const input = toRolloutInput(
      { view, nodes, readiness, cluster, clock, observations: this.observations },
      workload.value,
      replicas,
      wantedReplicas,
    );
    const gate = this.deps.gates?.evaluate(workload.value, nextControl, replicas);
    const waiting = pass.waiting?.count;
    const counted = waiting === undefined ? input.observed : { ...input.observed, waiting };
    const advance = advancePass(pass, counted, now.wallTimeMs, gate);
    const { observed, decision } = advance;
    if (waiting !== undefined && !mayLeaveOutWaiting(observed, waiting))
      return this.reconcileWith(workload.value.uid, undefined);
    const steps = decision.kind === 'steps' ? decision.steps : [];
    const queue = new StepQueue(
      pass,
      steps,
      new SlotBackoffs(nextControl, now.wallTimeMs),
      now,
      this.deps.newReplicas,
    );
    try {
      const first = queue.apply(pass);
      const events = new StepEvents(pass, observed);
      const creation = events.add(pass, first);
      first.placement?.addTo(transaction, creation);
      requireReadinessGuard(pass, observed, steps);
      pruneVersions(pass, pass.versions);
      const wakeInMs =
        advance.wakeAtMs === undefined ? undefined : advance.wakeAtMs - now.wallTimeMs;
      const nextPassMs = Math.min(
        ...[input.recheckInMs, first.retryDelayMs, wakeInMs].map(
          (ms) => ms ?? Number.POSITIVE_INFINITY,
        ),
      );
      this.starting.recordPass(workload.value.uid, { observed, decision }, replicas, nextPassMs);
      if (!isSameControl(pass.control.value, nextControl) || transaction.size > 0)
        return await this.commitSteps(pass, { queue, events, first });
      // After a commit, the next pass uses the observations once more.
      if (decision.kind === 'converged') this.observations.forget(workload.value.uid);
      const delayMs = this.starting.getWaitMs(workload.value.uid) || nextPassMs;
      return Number.isFinite(delayMs) ? { kind: 'after', delayMs } : { kind: 'done' };
    } finally {
      queue.close();
    }
  }

  private async commitSteps(pass: WorkloadPass, steps: DecidedSteps): Promise<WorkResult> {
    const { result, writes, isFinished } = await commitSteps(
      {
        state: this.deps.state,
        commit: (part, placement) => this.commitPass(part, placement),
        needsDecision: (created) => this.needsDecision(pass, created),
      },
      pass,
      steps,
    );
    if (writes > 0) this.logAdvance(pass, writes);
    if (isFinished) this.finished.add(pass.workload.value.uid);
    return result;
  }

  /** @param created - Replicas that the decision of a pass has created. */
  private needsDecision({ workload, replicas, waiting }: WorkloadPass, created: number): boolean {
    return (
      this.changed.has(workload.value.uid) ||
      this.closing.signal.aborted ||
      // The counts go on during the commits.
      created >= (replicas.length + (waiting?.count ?? 0)) / 2
    );
  }

  private async commit(pass: WorkloadPass): Promise<WorkResult> {
    const result = await this.commitPass(pass);
    if (result.kind !== 'committed') return result;
    this.logAdvance(pass, pass.transaction.size);
    return { kind: 'again' };
  }

  /**
   * Commits one transaction of a pass. Every creation and every stop requires the control record to
   * be unchanged and rewrites it, so that concurrent decisions cannot both use the same disruption
   * budget.
   * @param placement - The nodes of the new replicas, if the transaction assigns them.
   */
  private async commitPass(
    pass: WorkloadPass,
    placement?: PlacedCreation,
  ): ReturnType<typeof commitPart> {
    const { workload, control, transaction, nextControl } = pass;
    const { uid } = workload.value;
    const { state, tracer = noTracer } = this.deps;
    this.ownControls.add(nextControl);
    transaction
      .require('control', uid, control)
      .put('control', uid, nextControl)
      .require('workload', uid, workload);
    let isCommitted = false;
    placement?.begin();
    try {
      const commit = (): ReturnType<typeof commitPart> => commitPart(state, transaction);
      const result =
        placement === undefined || placement.size === 0
          ? await commit()
          : await tracer.follow(
              uid,
              'place replicas',
              { workloadId: uid, replicas: placement.size },
              commit,
            );
      isCommitted = result.kind === 'committed';
      return result;
    } finally {
      placement?.end(isCommitted);
      // The decision has to be made anew.
      if (!isCommitted) this.starting.delete(uid);
    }
  }

  /** @param writes - All writes of the decision, which may take several commits. */
  private logAdvance({ workload, decisionId }: WorkloadPass, writes: number): void {
    const { uid, requestId } = workload.value;
    const requestField = requestId === '' ? {} : { requestId };
    const fields = { workloadId: uid, writes, decisionId, ...requestField };
    this.deps.log.info('workload advanced', fields);
  }
}
