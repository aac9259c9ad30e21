import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, withDefaults, type PlanOutcome } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import { isLive, toCanonicalVersion, waitsForNode } from '@cloudless/cluster-state';
import {
  advanceRollout,
  predictRollout,
  formatDuration,
  formatReplicaCount,
  type PredictedStep,
  type RolloutAdvance,
  type RolloutObserved,
  type RolloutSettings,
  type RolloutState,
  type WaitReason,
} from '@cloudless/rollout';
import { resolveSpecLimits, toRolloutInput } from '../rollout/rollout-input.js';
import { isGlobal } from '../rollout/global-targets.js';
import { writeRolloutState, toRolloutState, toRolloutSettings } from '../rollout/rollout-state.js';
import { countStillWanted } from '../replica/finished.js';
import { assumeGatesPass, describeStepWait, startGatedWait } from './assumed-gates.js';
import { DryRunPlacement } from './dry-run-placement.js';
import { findEndOfDecision } from './end-of-decision.js';
import { findMoveWait } from './move-wait.js';
import { countServing, describeOutcome } from './plan-outcome.js';
import type { DryRunCluster } from './dry-run-cluster.js';

/** One predicted step. */
export interface DryRunStep {
  /** Text for users, for example `create 1 of version 2`. */
  readonly description: string;
  /** Number of available replicas that serve after the step. */
  readonly ready: number;
  /** Number of live replicas after the step. */
  readonly live: number;
  /** True for the last step of a prediction when that step cannot happen by itself. */
  readonly blocked?: boolean;
}

/** Prediction for one workload, up to the point where nothing more happens by itself. */
export interface DryRunResult {
  readonly steps: readonly DryRunStep[];
  /** Number of further creations that the prediction counted without simulating them. */
  readonly omittedSteps: number;
  readonly placements: readonly { readonly nodeId: string; readonly score: number }[];
  /** Number of replicas that no node fits. The reason is in {@link unplacedReason}. */
  readonly unplaced: number;
  /** How many of {@link unplaced} waited already: no node fitted them before the change. */
  readonly waitedBefore: number;
  readonly unplacedReason: string;
  /**
   * Finds the smallest change after which a node fits such a replica; empty when none is known.
   * Consumes budget of the plan: call it only for a result that is shown.
   */
  readonly suggestChange: () => string;
  /** Replicas of other workloads that would be preempted, as one sentence; empty for none. */
  readonly preempts: string;
  /** Number of replicas in {@link preempts}. */
  readonly preempted: number;
  /** The same by the uid of their workload. */
  readonly victims: ReadonlyMap<string, number>;
  /** Number of new replicas whose placement was not predicted. */
  readonly notPredicted: number;
  /** Lowest {@link DryRunStep.ready} and highest {@link DryRunStep.live} of all steps. */
  readonly lowestReady: number;
  readonly highestLive: number;
  /** The resolved `min_available` at the begin. */
  readonly minAvailable: number;
  /** Number of available replicas that serve before the first step. */
  readonly readyBefore: number;
  /** Reason why the workload does not reach its spec by itself; undefined when it does. */
  readonly stuckReason: string | undefined;
  /**
   * Reason why replicas that have to leave their nodes, and end before their replacements start,
   * stay until another replica is ready; undefined when the first of them may stop at once. The
   * steps assume that all replicas become ready.
   */
  readonly moveWaitReason: string | undefined;
  /** The state in which the workload stays. */
  readonly outcome: PlanOutcome;
}

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
  private readonly placement: DryRunPlacement;
  private replicasById: ReadonlyMap<string, ReplicaRecord> = new Map();
  private readonly settings: RolloutSettings;
  private state: RolloutState;
  private nowMs: number;
  private stuckReason: string | undefined;
  /** Number of wanted replicas that are counted, and not simulated. */
  private omitted = 0;

  constructor(
    private readonly cluster: DryRunCluster,
    deps: DryRunDeps,
    private readonly workload: WorkloadRecord,
  ) {
    this.placement = new DryRunPlacement(cluster, workload);
    this.settings = toRolloutSettings(workload.spec ?? create(WorkloadSpecSchema));
    this.nowMs = deps.clock.wallTime();
    this.state = startGatedWait(toRolloutState(cluster.copyControl(workload.uid)), this.nowMs);
  }

  run(): DryRunResult {
    const { uid } = this.workload;
    const waiting = this.cluster.replicasOf(uid).filter(waitsForNode);
    this.omitted = this.countOmitted();
    const { observed, decision } = this.advance();
    const placed = this.placement.placeReplicas(waiting, observed);
    this.cluster.putReplicas(uid, [...placed, ...this.placement.unplaced]);
    let rounds = 0;
    while (rounds < MAX_ROUNDS && this.runRound()) rounds += 1;
    if (rounds === MAX_ROUNDS)
      this.stuckReason = 'the rollout needs more rounds than a dry run predicts';
    this.storeState();
    this.addBlockedStep();
    // The counts of a workload that needs no step.
    const prediction = predictRollout(observed);
    const [firstStep] = this.steps;
    return {
      steps: this.steps,
      omittedSteps: this.omitted,
      placements: this.placement.placements,
      unplaced: this.countUnplaced(),
      waitedBefore: this.placement.countWaitedBefore(),
      unplacedReason: this.placement.unplaced.length === 0 ? '' : this.placement.reason,
      suggestChange: () =>
        this.placement.unplaced.length === 0 ? '' : this.placement.suggestChange(),
      preempts: this.placement.preempted.describe((uid) => this.cluster.view.workload(uid)?.value),
      preempted: this.placement.preempted.count,
      victims: this.placement.preempted.byWorkload,
      notPredicted: this.placement.notPredicted + this.countAssumedReady(),
      lowestReady: this.steps.reduce(
        (lowest, { ready }) => Math.min(lowest, ready),
        firstStep?.ready ?? prediction.lowestAvailable,
      ),
      highestLive: this.steps
        .filter(({ blocked }) => blocked !== true)
        .reduce(
          (highest, { live }) => Math.max(highest, live + this.omitted),
          this.steps.at(-1)?.live ?? this.omitted + prediction.highestLive,
        ),
      minAvailable: observed.minAvailable,
      readyBefore: countServing(observed),
      stuckReason: this.stuckReason,
      moveWaitReason: findMoveWait(this.workload, observed, decision),
      outcome: describeOutcome({
        observed: this.advance().observed,
        state: this.state,
        settings: this.settings,
        unplaced: this.placement.unplaced.length,
        stuckReason: this.stuckReason,
        omitted: this.omitted,
        assumedReady: this.countAssumedReady(),
      }),
    };
  }

  /**
   * Returns the number of wanted replicas to count without simulating them: those above the
   * existing ones and above the budget of the plan.
   */
  private countOmitted(): number {
    // The targets of a GLOBAL workload are nodes, so their number is bounded by the cluster.
    if (isGlobal(this.workload.spec)) return 0;
    const existing = this.cluster
      .replicasOf(this.workload.uid)
      .filter((replica) => isLive(replica) && !replica.lost && replica.desiredRunning).length;
    const missing = Math.max(0, this.countDesired() - existing);
    return missing - this.cluster.budget.consumeNewReplicas(missing);
  }

  /**
   * Returns the number of new replicas that no node fits. All new replicas are equal: when no node
   * fits the last of the simulated ones, none fits the others.
   */
  private countUnplaced(): number {
    const simulated = this.placement.unplaced.length;
    return simulated === 0 ? 0 : simulated + this.omitted;
  }

  /** Returns the number of replicas that were not simulated and are assumed to become ready. */
  private countAssumedReady(): number {
    return this.placement.unplaced.length === 0 ? this.omitted : 0;
  }

  /** Returns the number of replicas that have to run. */
  private countDesired(): number {
    const { cluster, workload } = this;
    const spec = withDefaults(workload.spec ?? create(WorkloadSpecSchema));
    const replicas = cluster.replicasOf(workload.uid);
    return countStillWanted(cluster.view, workload, replicas, spec.replicas ?? 0);
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
    const predicted = predictRollout(observed).steps;
    // While replicas have no node, only the steps of the first decision are valid: the prediction
    // assumes that every new replica becomes ready.
    const currentDecision =
      decision.kind === 'steps' ? predicted.filter((step) => step.decision === 0) : [];
    const applied = this.applyPredictedSteps(
      this.placement.unplaced.length === 0 ? predicted : currentDecision,
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
    if (state.waitsUntilMs !== undefined && this.addTimedWait(state, waitKind, observed)) {
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

  /**
   * Adds a wait that ends by time alone as a step. The step shows the full time, even when a part
   * of the time has passed already.
   * @returns False, without a step, when the wait does not end by time alone.
   */
  private addTimedWait(
    state: RolloutState,
    waitKind: WaitReason['kind'] | undefined,
    observed: RolloutObserved,
  ): boolean {
    const { canarySteps, pauseMs } = this.settings;
    const canaryStep = canarySteps[state.stepsDone];
    if (
      state.stepReachedAtMs !== undefined &&
      canaryStep !== undefined &&
      canaryStep.wait !== 'promotion'
    ) {
      const description = describeStepWait(canaryStep);
      if (description !== '') this.addStep(description, observed);
      return true;
    }
    if (waitKind === 'kept')
      this.addStep(`keep version ${state.fromVersion} for ${formatDuration(pauseMs)}`, observed);
    return waitKind === 'kept';
  }

  private advance(): RolloutAdvance {
    const { cluster, workload } = this;
    const { uid, version } = workload;
    const spec = workload.spec ?? create(WorkloadSpecSchema);
    const control = cluster.copyControl(uid);
    const replicas = cluster.replicasOf(uid);
    const desired = this.countDesired();
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
    // Stops are decided with the limits of the whole workload.
    const observed =
      this.omitted === 0
        ? input
        : { ...input, minAvailable: resolveSpecLimits(spec, desired).minAvailable };
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
      placed.push(...this.applyDecision(steps.slice(applied, end), stopped, observed));
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
    const waiting = [...this.placement.unplaced];
    const releasedIds: string[] = [];
    for (const predicted of steps) {
      const { step } = predicted;
      const counts = { ready: predicted.available, live: predicted.live };
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
    const live = observed.replicas.filter(({ lost }) => !lost).length;
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
