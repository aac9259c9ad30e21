import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
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
import { writeRolloutState } from '../rollout/rollout-state.js';
import { assumeGatesPass, describeStepWait, describeTimedWait } from './assumed-gates.js';
import { observeCounted, predictCounted, type CountedReplicas } from './counted-replicas.js';
import type { DryRunCluster } from './dry-run-cluster.js';
import { DryRunPlacement } from './dry-run-placement.js';
import type { DryRunStep } from './dry-run-result.js';
import { findEndOfDecision } from './end-of-decision.js';
import { countServing } from './plan-outcome.js';
import { sortBySequence } from './replica-groups.js';
import { countDesired, type ReplicaSelection, type RolloutStart } from './replica-selection.js';

/**
 * Most rounds of a simulation. A rollout has at most 32 canary steps, each with a wait; a
 * simulation with more rounds than this would not end.
 */
const MAX_ROUNDS = 200;

/** Steps and observed replicas between two pauses: applying so many steps takes about 10 ms. */
const WORK_PER_SLICE = 500;

/** The steps of one round, while they are applied. */
interface Round {
  /** The state of the rollout at the start of the round. */
  readonly observed: RolloutObserved;
  /** The simulated replicas at the start of the round, by id. */
  readonly replicasById: ReadonlyMap<string, ReplicaRecord>;
  /** Ids of the replicas that the applied steps stop. */
  readonly stopped: Set<string>;
}

/** The simulation of the rollout of one workload, in a simulated cluster. */
export class RolloutSimulation {
  /** The first decision about the change. */
  readonly first: RolloutAdvance;
  readonly steps: DryRunStep[] = [];
  readonly placement: DryRunPlacement;
  readonly settings: RolloutSettings;
  /** Number of existing replicas that are simulated from the start. */
  readonly simulatedCount: number;
  /** The replicas that are not simulated. The placement of a waiting replica removes it. */
  counted: CountedReplicas;
  /** The rollout state after {@link steps}. */
  state: RolloutState;
  /** Number of first steps during which the counted replicas that stop still exist. */
  stepsWhileStopping = 0;
  /** Reason why the workload does not reach its spec by itself; undefined when it does. */
  stuckReason: string | undefined;
  private nowMs: number;
  /** Number of steps and observed replicas since the last pause. */
  private work: number;

  /** @param selection - Replaces the replicas of the workload in the simulated cluster. */
  constructor(
    private readonly cluster: DryRunCluster,
    private readonly workload: WorkloadRecord,
    start: RolloutStart,
    { simulated, counted }: ReplicaSelection,
  ) {
    this.counted = counted;
    this.state = start.state;
    this.settings = start.settings;
    this.nowMs = start.nowMs;
    this.simulatedCount = simulated.length;
    this.work = simulated.length;
    cluster.setReplicas(workload.uid, simulated);
    this.placement = new DryRunPlacement(cluster, workload, simulated);
    this.first = this.decide(/* waitingIsReady */ false);
  }

  /**
   * Simulates the rollout until nothing more happens by itself, and stores the predicted state in
   * the simulated cluster. Yields whenever other work should run.
   */
  *run(): Generator<void, void> {
    yield* this.pauseAfter(0);
    yield* this.pauseAfter(yield* this.placeWaiting());
    let rounds = 0;
    while (rounds < MAX_ROUNDS && (yield* this.runRound())) rounds += 1;
    if (rounds === MAX_ROUNDS)
      this.stuckReason = 'the rollout needs more rounds than a dry run predicts';
    this.storeState();
    this.addBlockedStep();
    yield* this.pauseAfter(this.first.observed.replicas.length);
  }

  /** Returns the simulated replicas as they are now, and the counted replicas as numbers. */
  observe(): RolloutObserved {
    return this.advance().observed;
  }

  /**
   * Places the replicas that waited before the change, as the placer would. The budget limits how
   * many of the counted replicas are placed too; a counted replica that a node fits is simulated
   * from then on. Yields whenever other work should run.
   * @returns The number of replicas that the placer decides about.
   */
  private *placeWaiting(): Generator<void, number> {
    const { cluster, placement, counted } = this;
    const { uid } = this.workload;
    const simulated = cluster.replicasOf(uid).filter(waitsForNode);
    const added = cluster.budget.consumeNewReplicas(counted.waiting.length);
    const others = counted.waiting.slice(counted.waiting.length - added);
    const waiting = added === 0 ? simulated : sortBySequence([...others, ...simulated]);
    const placed = yield* placement.placeReplicas(waiting, this.first.observed);
    if (added > 0) {
      const simulatedIds = new Set(simulated.map(({ id }) => id));
      placement.unplaced = placement.unplaced.filter(({ id }) => simulatedIds.has(id));
      const placedIds = new Set(placed.map(({ id }) => id));
      const stillWaiting = counted.waiting.filter(({ id }) => !placedIds.has(id));
      this.counted = { ...counted, waiting: stillWaiting };
    }
    cluster.putReplicas(uid, [...placed, ...placement.unplaced]);
    return waiting.length;
  }

  /** Yields when the work since the last pause fills a slice. */
  private *pauseAfter(work: number): Generator<void, void> {
    this.work += work;
    if (this.work < WORK_PER_SLICE) return;
    this.work = 0;
    yield;
  }

  /** Ends the steps with the step that cannot happen, when the workload does not reach its spec. */
  private addBlockedStep(): void {
    const { unplaced, reason } = this.placement;
    const { created } = this.counted;
    const counted = predictCounted(this.counted, {
      unplaced: unplaced.length,
      stuck: this.stuckReason !== undefined,
    });
    const count = unplaced.length + counted.unplaced;
    const description =
      count > 0
        ? `${formatReplicaCount(count)} ${count === 1 ? 'waits' : 'wait'}: no node fits (${reason})`
        : this.stuckReason;
    if (description === undefined) return;
    const step = this.createStep(description, this.observe());
    // The counted replicas are created, too, and wait.
    this.steps.push({ ...step, live: step.live + created, blocked: true });
  }

  /**
   * Simulates the steps of one round. Yields whenever other work should run.
   * @returns True when another round may follow.
   */
  private *runRound(): Generator<void, boolean> {
    const { observed, state, decision } = this.advance();
    yield* this.pauseAfter(observed.replicas.length);
    // While replicas have no node, only the steps of the first decision are valid: the prediction
    // assumes that every new replica becomes ready.
    const predictBlocked = (): readonly PredictedStep[] =>
      decision.kind === 'steps' ? predictFirstDecision(observed) : [];
    const applied = yield* this.applySteps(
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
   * Simulates a round that neither creates nor stops replicas: a switch, a promotion, or a wait.
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

  /** Makes the next decision of the rollout. Changes nothing. */
  private advance(): RolloutAdvance {
    return this.decide(/* waitingIsReady */ this.placement.unplaced.length === 0);
  }

  /** @param waitingIsReady - True when the counted waiting replicas have become ready. */
  private decide(waitingIsReady: boolean): RolloutAdvance {
    const { cluster, workload, settings, state, nowMs } = this;
    const { uid, version, spec } = workload;
    const { created, stopping } = this.counted;
    const control = cluster.copyControl(uid);
    const replicas = cluster.replicasOf(uid);
    const desired = countDesired(cluster, workload, replicas);
    const sources = {
      view: cluster.view,
      nodes: cluster.nodes,
      readiness: cluster.readiness,
      cluster: cluster.schedulerModel,
      clock: { wallTime: () => nowMs },
    };
    const simulated = Math.max(0, desired - created);
    const input = toRolloutInput(sources, workload, replicas, simulated).observed;
    return advanceRollout(state, {
      settings: assumeGatesPass(settings),
      version,
      toCanonical: (number) => this.toCanonical(number),
      observed: {
        ...input,
        // Stops are decided with the limits of the whole workload, unless all its replicas are new.
        ...(created === 0 || stopping.length > 0
          ? {}
          : { minAvailable: resolveSpecLimits(spec ?? NO_SPEC, desired).minAvailable }),
        ...observeCounted(this.counted, waitingIsReady),
      },
      pausedByUser: control.pausedVersion === version,
      failures: state.version === version ? (control.rollout?.failedNew ?? 0) : 0,
      changed: true,
      nowMs,
    });
  }

  /**
   * Applies predicted steps up to a switch, or up to a decision that leaves replicas without a
   * node. Yields whenever other work should run.
   * @returns The number of applied steps.
   */
  private *applySteps(
    steps: readonly PredictedStep[],
    observed: RolloutObserved,
  ): Generator<void, number> {
    const { cluster, placement, counted } = this;
    const { uid } = this.workload;
    const replicasById = new Map(cluster.replicasOf(uid).map((replica) => [replica.id, replica]));
    const round: Round = { observed, replicasById, stopped: new Set() };
    const placed: ReplicaRecord[] = [];
    let applied = 0;
    while (applied < steps.length) {
      const end = findEndOfDecision(steps, applied);
      if (end === applied) break;
      const isFirst = this.steps.length === 0;
      const stillStopping = isFirst ? counted.stopping.length : 0;
      const decision = steps.slice(applied, end);
      for (const replica of yield* this.applyDecision(decision, round, stillStopping))
        placed.push(replica);
      if (stillStopping > 0) this.stepsWhileStopping = this.steps.length;
      yield* this.pauseAfter(end - applied);
      applied = end;
      // The prediction of later decisions assumes that all new replicas become ready.
      if (placement.unplaced.length > 0) break;
    }
    cluster.settleReplicas(uid, round.stopped, [...placed, ...placement.unplaced]);
    return applied;
  }

  /**
   * Applies the steps of one decision. New replicas are placed before the stopped replicas release
   * their resources, as stops take time; new replicas that no node fits are placed again after the
   * release. Yields whenever other work should run.
   * @param stillStopping - Number of counted replicas that stop, and are still live.
   * @returns The placed replicas.
   */
  private *applyDecision(
    steps: readonly PredictedStep[],
    { observed, replicasById, stopped }: Round,
    stillStopping: number,
  ): Generator<void, readonly ReplicaRecord[]> {
    const { cluster, placement, workload } = this;
    const waiting = [...placement.unplaced];
    const releasedIds: string[] = [];
    for (const { step, available, live } of steps) {
      const counts = { ready: available, live: live + stillStopping };
      if (step.kind === 'createReplica') {
        const onNode = step.nodeId === undefined ? '' : ` on ${step.nodeId}`;
        const version = this.toShownVersion(step.version);
        this.steps.push({ description: `create 1 of version ${version}${onNode}`, ...counts });
        waiting.push(cluster.createReplica(workload, step.version, step.nodeId ?? ''));
      } else if (step.kind === 'stopReplica') {
        const leaving = replicasById.get(step.replicaId);
        const version = leaving?.version ?? workload.version;
        this.steps.push({ description: `stop 1 of version ${version}`, ...counts });
        if (leaving !== undefined) cluster.markLeaving(workload, leaving);
        stopped.add(step.replicaId);
        releasedIds.push(step.replicaId);
      }
    }
    const notStopped = waiting.filter(({ id }) => !stopped.has(id));
    const placed = yield* placement.placeReplicas(notStopped, observed);
    for (const replicaId of releasedIds) cluster.release(replicaId);
    return releasedIds.length > 0
      ? [...placed, ...(yield* placement.placeReplicas(placement.unplaced, observed))]
      : placed;
  }

  /** Stores the predicted rollout state in the simulated cluster. */
  private storeState(): void {
    const control = this.cluster.copyControl(this.workload.uid);
    writeRolloutState(control, this.state);
    control.observedGeneration = this.workload.generation;
    this.cluster.putControl(control);
  }

  private addStep(description: string, observed: RolloutObserved, activeVersion?: number): void {
    this.steps.push(this.createStep(description, observed, activeVersion));
  }

  /**
   * Returns a step with the counts of the observed replicas.
   * @param activeVersion - Version that serves after a switch. Default: the active version of a
   *   blue/green rollout; every version of another rollout serves.
   */
  private createStep(
    description: string,
    observed: RolloutObserved,
    activeVersion?: number,
  ): DryRunStep {
    let live = (observed.waiting ?? 0) + (observed.alsoAvailable ?? 0);
    for (const { lost } of observed.replicas) if (!lost) live += 1;
    return { description, ready: countServing(observed, activeVersion), live };
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
}

const NO_SPEC = create(WorkloadSpecSchema);
