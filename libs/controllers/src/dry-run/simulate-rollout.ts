import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import { toCanonicalVersion, waitsForNode } from '@cloudless/cluster-state';
import {
  advanceRollout,
  predictFirstDecision,
  predictRollout,
  formatReplicaCount,
  type PredictedStep,
  type RolloutAdvance,
  type RolloutObserved,
  type RolloutSettings,
  type RolloutState,
} from '@cloudless/rollout';
import { resolveSpecLimits, toRolloutInput } from '../rollout/rollout-input.js';
import { writeRolloutState, toRolloutState, toRolloutSettings } from '../rollout/rollout-state.js';
import {
  assumeGatesPass,
  describeStepWait,
  describeTimedWait,
  startGatedWait,
} from './assumed-gates.js';
import { DryRunPlacement } from './dry-run-placement.js';
import { findEndOfDecision } from './end-of-decision.js';
import { findMoveWait } from './move-wait.js';
import { countServing, describeOutcome } from './plan-outcome.js';
import type { DryRunResult, DryRunStep } from './dry-run-result.js';
import {
  countDesired,
  countLeftOut,
  countRefused,
  findExtremes,
  includeReplicas,
  isUpdateOfAll,
  leaveOutReplicas,
  mayLeaveOut,
  placeWaiting,
  putBackReplicas,
  resolveMinAvailable,
  type PredictionStart,
} from './leave-out-replicas.js';
import { simulateAll, type SimulatedPart } from './simulated-part.js';
import type { DryRunCluster } from './dry-run-cluster.js';

export interface DryRunDeps {
  readonly clock: Pick<Clock, 'wallTime'>;
}

/**
 * Most rounds of a dry run. A rollout has at most 32 canary steps, each with a wait; a dry run with
 * more rounds than this would not end.
 */
const MAX_ROUNDS = 200;

/**
 * Predicts the changes of a workload until nothing more happens by itself. Uses the functions of
 * the controllers and assumes that nothing fails: new replicas become ready, stops are confirmed,
 * waits and gates pass, and every promotion is granted.
 */
export function simulateRollout(
  cluster: DryRunCluster,
  deps: DryRunDeps,
  workload: WorkloadRecord,
): DryRunResult {
  return new WorkloadDryRun(cluster, deps, workload).run();
}

/** The dry run of one workload. */
class WorkloadDryRun {
  private readonly steps: DryRunStep[] = [];
  private placement: DryRunPlacement;
  private part: SimulatedPart = simulateAll([]);
  private replicasById: ReadonlyMap<string, ReplicaRecord> = new Map();
  private readonly settings: RolloutSettings;
  private state: RolloutState;
  private nowMs: number;
  private stuckReason: string | undefined;
  /** Number of new replicas that are counted, and not simulated. */
  private omitted = 0;
  /** True once the placer would have tried to place the replicas that waited. */
  private hasPlaced = false;
  /** Number of steps before the end of the replicas that are stopping and not simulated. */
  private stepsWhileStopping = 0;

  constructor(
    private readonly cluster: DryRunCluster,
    deps: DryRunDeps,
    private readonly workload: WorkloadRecord,
  ) {
    this.placement = new DryRunPlacement(cluster, workload, []);
    this.settings = toRolloutSettings(workload.spec ?? create(WorkloadSpecSchema));
    this.nowMs = deps.clock.wallTime();
    this.state = startGatedWait(toRolloutState(cluster.copyControl(workload.uid)), this.nowMs);
  }

  run(): DryRunResult {
    const { uid } = this.workload;
    const { observed, decision } = this.begin();
    const waiting = this.cluster.replicasOf(uid).filter(waitsForNode);
    const { placed, part: started } = placeWaiting(
      this.cluster,
      this.placement,
      { part: this.part, waiting },
      observed,
    );
    this.part = started;
    this.cluster.putReplicas(uid, [...placed, ...this.placement.unplaced]);
    this.hasPlaced = true;
    let rounds = 0;
    while (rounds < MAX_ROUNDS && this.runRound()) rounds += 1;
    if (rounds === MAX_ROUNDS)
      this.stuckReason = 'the rollout needs more rounds than a dry run predicts';
    this.storeState();
    this.addBlockedStep();
    const last = this.advance().observed;
    putBackReplicas(this.cluster, uid, this.part);
    const { part, steps, omitted, stepsWhileStopping } = this;
    const assumedReady = this.isLeftOutAssumedReady ? part.waiting.length : 0;
    const replacedLater = this.countReplacedLater();
    const waitedBefore = this.placement.unplaced.length === 0 ? 0 : countRefused(part.waiting);
    return {
      steps,
      omittedSteps: this.omitted + part.stopping.length + 2 * replacedLater,
      placements: this.placement.placements,
      unplaced: this.countUnplaced(),
      waitedBefore: this.placement.countWaitedBefore() + waitedBefore,
      unplacedReason: this.placement.unplaced.length === 0 ? '' : this.placement.reason,
      suggestChange: () =>
        this.placement.unplaced.length === 0 ? '' : this.placement.suggestChange(),
      preempts: this.placement.preempted.describe((uid) => this.cluster.view.workload(uid)?.value),
      preempted: this.placement.preempted.count,
      victims: this.placement.preempted.byWorkload,
      notPredicted:
        this.placement.notPredicted +
        this.countAssumedReady() +
        part.replacedLater.length +
        assumedReady,
      ...findExtremes(steps, observed, { omitted, stepsWhileStopping }),
      minAvailable: resolveMinAvailable(this.workload, observed, part, last.want + this.omitted),
      readyBefore: countServing(observed),
      stuckReason: this.stuckReason,
      moveWaitReason: findMoveWait(this.workload, observed, decision),
      outcome: describeOutcome({
        observed: last,
        state: this.state,
        settings: this.settings,
        unplaced: this.placement.unplaced.length,
        stuckReason: this.stuckReason,
        omitted: this.omitted,
        assumedReady: this.countAssumedReady(),
        alsoUpdated: part.staying.length + assumedReady + replacedLater,
      }),
    };
  }

  /** Chooses the replicas to simulate, and makes the first decision about the change. */
  private begin(): RolloutAdvance {
    const { cluster, workload, state, settings, nowMs } = this;
    const all = cluster.replicasOf(workload.uid);
    if (
      all.length > cluster.budget.maxSimulated &&
      mayLeaveOut(cluster, workload, { state, settings })
    ) {
      const first = this.beginWith(leaveOutReplicas(cluster, workload, all, nowMs));
      if (isUpdateOfAll(first.observed)) return first;
    }
    return this.beginWith(includeReplicas(cluster, workload, all));
  }

  private beginWith({ part, omitted }: PredictionStart): RolloutAdvance {
    this.part = part;
    this.omitted = omitted;
    this.cluster.setReplicas(this.workload.uid, part.simulated);
    this.placement = new DryRunPlacement(this.cluster, this.workload, part.simulated);
    return this.advance();
  }

  /** True while the waiting replicas that are not simulated are assumed to become ready. */
  private get isLeftOutAssumedReady(): boolean {
    return this.hasPlaced && this.placement.unplaced.length === 0;
  }

  /** Returns the number of replicas that are assumed to be replaced as the simulated ones were. */
  private countReplacedLater(): number {
    const completes = this.placement.unplaced.length === 0 && this.stuckReason === undefined;
    return completes ? this.part.replacedLater.length : 0;
  }

  /**
   * Returns the number of replicas that no node fits. All of one version are equal: when no node
   * fits the last of the simulated ones, none fits the others.
   */
  private countUnplaced(): number {
    const simulated = this.placement.unplaced.length;
    return simulated === 0 ? 0 : simulated + this.omitted + this.part.waiting.length;
  }

  /** Returns the number of replicas that were not simulated and are assumed to become ready. */
  private countAssumedReady(): number {
    return this.placement.unplaced.length === 0 ? this.omitted : 0;
  }

  /** Ends the steps with the step that cannot happen, when the workload does not reach its spec. */
  private addBlockedStep(): void {
    const { reason } = this.placement;
    const count = this.countUnplaced();
    const description =
      count > 0
        ? `${formatReplicaCount(count)} ${count === 1 ? 'waits' : 'wait'}: no node fits (${reason})`
        : this.stuckReason;
    if (description === undefined) return;
    this.addStep(description, this.advance().observed);
    const blocked = this.steps.pop();
    if (blocked === undefined) return;
    // The others are created, too, and wait.
    this.steps.push({ ...blocked, live: blocked.live + this.omitted, blocked: true });
  }

  /**
   * Predicts the steps of one round.
   * @returns True when another round may follow.
   */
  private runRound(): boolean {
    const { observed, state, decision } = this.advance();
    // While replicas have no node, only the steps of the first decision are valid: the prediction
    // assumes that every new replica becomes ready.
    const predictBlocked = (): readonly PredictedStep[] =>
      decision.kind === 'steps' ? predictFirstDecision(observed) : [];
    const applied = this.applyPredictedSteps(
      this.placement.unplaced.length === 0 ? predictRollout(observed).steps : predictBlocked(),
      observed,
    );
    if (applied > 0) {
      this.state = state;
      return true;
    }
    return this.handleWait(this.advance());
  }

  /**
   * Predicts a round that neither creates nor stops replicas: a switch, a promotion, or a wait.
   * @returns True when another round may follow.
   */
  private handleWait({ state, decision, observed }: RolloutAdvance): boolean {
    const before = this.state;
    this.state = state;
    if (decision.kind === 'steps') {
      const isSwitch = decision.steps.some(({ kind }) => kind === 'switchVersion');
      if (isSwitch)
        this.addStep(
          `switch to version ${this.toShownVersion(observed.version)}`,
          observed,
          this.toCanonical(state.activeVersion),
        );
      return isSwitch;
    }
    const canaryStep = this.settings.canarySteps[state.stepsDone];
    // A canary step that covers all replicas waits although the planner has nothing left to do.
    if (state.waitsForPromotion && !state.promoted) {
      this.addStep(
        canaryStep?.wait === 'promotion' ? describeStepWait(canaryStep) : 'wait until promoted',
        observed,
      );
      this.state = { ...state, promoted: true };
      return true;
    }
    const waitKind = decision.kind === 'waiting' ? decision.reason.kind : undefined;
    const timedWait = describeTimedWait(this.settings, state, waitKind);
    if (state.waitsUntilMs !== undefined && timedWait !== undefined) {
      if (timedWait !== '') this.addStep(timedWait, observed);
      this.nowMs = Math.max(this.nowMs, state.waitsUntilMs);
      return true;
    }
    if (decision.kind === 'converged') {
      if ((observed.pinnedNodes ?? []).length > 0) this.stuckReason = state.reason;
      return before.stepsDone !== state.stepsDone;
    }
    this.stuckReason =
      state.phase === 'failed' ? `its rollout has failed: ${state.reason}` : decision.reason.text;
    return false;
  }

  private advance(): RolloutAdvance {
    const { cluster, workload } = this;
    const { uid, version } = workload;
    const spec = workload.spec ?? create(WorkloadSpecSchema);
    const control = cluster.copyControl(uid);
    const replicas = cluster.replicasOf(uid);
    const desired = countDesired(cluster, workload, replicas);
    const clock = { wallTime: () => this.nowMs };
    const sources = {
      view: cluster.view,
      nodes: cluster.nodes,
      readiness: cluster.readiness,
      cluster: cluster.schedulerModel,
      clock,
    };
    const simulated = Math.max(0, desired - this.omitted);
    const input = toRolloutInput(sources, workload, replicas, simulated).observed;
    const observed = {
      ...input,
      // Stops are decided with the limits of the whole workload, unless all of its replicas are new.
      ...(this.omitted === 0 || this.part.stopping.length > 0
        ? {}
        : { minAvailable: resolveSpecLimits(spec, desired).minAvailable }),
      ...countLeftOut(this.part, this.isLeftOutAssumedReady),
    };
    return advanceRollout(this.state, {
      settings: assumeGatesPass(this.settings),
      version,
      toCanonical: (number) => this.toCanonical(number),
      observed,
      pausedByUser: control.pausedVersion === version,
      failures: this.state.version === version ? (control.rollout?.failedNew ?? 0) : 0,
      changed: true,
      nowMs: this.nowMs,
    });
  }

  /**
   * Applies predicted steps up to a switch, or up to a decision that leaves replicas without a
   * node.
   * @returns The number of applied steps.
   */
  private applyPredictedSteps(steps: readonly PredictedStep[], observed: RolloutObserved): number {
    const stopped = new Set<string>();
    const placed: ReplicaRecord[] = [];
    this.replicasById = new Map(
      this.cluster.replicasOf(this.workload.uid).map((replica) => [replica.id, replica]),
    );
    let applied = 0;
    while (applied < steps.length) {
      const end = findEndOfDecision(steps, applied);
      if (end === applied) break;
      const isFirst = this.steps.length === 0;
      for (const replica of this.applyDecision(steps.slice(applied, end), stopped, observed))
        placed.push(replica);
      if (isFirst && this.part.stopping.length > 0) this.stepsWhileStopping = this.steps.length;
      applied = end;
      // The prediction of later decisions assumes that all new replicas become ready.
      if (this.placement.unplaced.length > 0) break;
    }
    this.cluster.settleReplicas(this.workload.uid, stopped, [
      ...placed,
      ...this.placement.unplaced,
    ]);
    return applied;
  }

  /**
   * Applies the steps of one decision. New replicas are placed before the stopped replicas release
   * their resources, as stops take time; new replicas that no node fits are placed again after the
   * release.
   * @param stopped - Gets the ids of the replicas that the steps stop.
   * @returns The placed replicas.
   */
  private applyDecision(
    steps: readonly PredictedStep[],
    stopped: Set<string>,
    observed: RolloutObserved,
  ): readonly ReplicaRecord[] {
    const stopping = this.steps.length === 0 ? this.part.stopping.length : 0;
    const waiting = [...this.placement.unplaced];
    const releasedIds: string[] = [];
    for (const predicted of steps) {
      const { step } = predicted;
      const live = predicted.live + stopping;
      const counts = { ready: predicted.available, live };
      if (step.kind === 'createReplica') {
        const onNode = step.nodeId === undefined ? '' : ` on ${step.nodeId}`;
        this.steps.push({
          description: `create 1 of version ${this.toShownVersion(step.version)}${onNode}`,
          ...counts,
        });
        waiting.push(this.cluster.createReplica(this.workload, step.version, step.nodeId ?? ''));
      } else if (step.kind === 'stopReplica') {
        this.steps.push({
          description: `stop 1 of version ${this.getVersionOf(step.replicaId)}`,
          ...counts,
        });
        const leaving = this.replicasById.get(step.replicaId);
        if (leaving !== undefined) this.cluster.markLeaving(this.workload, leaving);
        stopped.add(step.replicaId);
        releasedIds.push(step.replicaId);
      }
    }
    const notStopped = waiting.filter(({ id }) => !stopped.has(id));
    const placed = this.placement.placeReplicas(notStopped, observed);
    for (const replicaId of releasedIds) this.cluster.release(replicaId);
    return releasedIds.length > 0
      ? [...placed, ...this.placement.placeReplicas(this.placement.unplaced, observed)]
      : placed;
  }

  /** Stores the predicted rollout state in the simulated cluster. */
  private storeState(): void {
    const control = this.cluster.copyControl(this.workload.uid);
    writeRolloutState(control, this.state);
    control.observedGeneration = this.workload.generation;
    this.cluster.putControl(control);
  }

  /**
   * Adds a step with the counts of the observed replicas.
   * @param activeVersion - Version that serves after a switch. Default: the active version of a
   *   blue/green rollout; every version of another rollout serves.
   */
  private addStep(description: string, observed: RolloutObserved, activeVersion?: number): void {
    let live = (observed.waiting ?? 0) + (observed.alsoAvailable ?? 0);
    for (const { lost } of observed.replicas) if (!lost) live += 1;
    this.steps.push({ description, ready: countServing(observed, activeVersion), live });
  }

  private toCanonical(version: number): number {
    return toCanonicalVersion(this.cluster.view, this.workload.uid, version);
  }

  /**
   * Returns the version number to show. The planner uses the number of the oldest version with the
   * same template; users know the wanted version by its newest number.
   */
  private toShownVersion(version: number): number {
    return this.toCanonical(this.workload.version) === version ? this.workload.version : version;
  }

  private getVersionOf(replicaId: string): number {
    return this.replicasById.get(replicaId)?.version ?? this.workload.version;
  }
}
