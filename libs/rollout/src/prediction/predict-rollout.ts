import type { RolloutStep, WaitReason } from '../steps/decision.js';
import { decideNextSteps } from '../steps/next-steps.js';
import type { RolloutObserved, RolloutReplica } from '../steps/observed.js';
import { countWhere, isStaying } from '../steps/replica-tally.js';
import { predictBatches, createPredictedReplica, type StepRecorder } from './predict-batches.js';

/** One predicted step. */
export interface PredictedStep {
  /** The step, or a wait at a canary step that the prediction continues past. */
  readonly step: RolloutStep | { readonly kind: 'stepReached'; readonly updated: number };
  /**
   * Index of the decision that the step belongs to. The steps of one decision may happen in any
   * order.
   */
  readonly decision: number;
  /**
   * Available replicas after this step, if new replicas become available before the next decision;
   * under blue/green only replicas of the active version.
   */
  readonly available: number;
  /** Live replicas after this step, including stopping replicas. */
  readonly live: number;
}

/**
 * End of a rollout in which nothing fails: the rollout completes, waits for a promotion or a time
 * that was not granted, or is stuck without a possible step.
 */
export type PredictedOutcome =
  | { readonly kind: 'completes' }
  | { readonly kind: 'waits' | 'stuck'; readonly reason: WaitReason };

/**
 * Assumptions of a prediction: promotions are granted, and the waits of canary steps and after a
 * switch pass.
 */
export interface PredictionGrants {
  /**
   * The canary steps after `strategy.updated`, in order, each as a number of updated replicas. All
   * replicas follow after the last step. Default none.
   */
  readonly canarySteps?: readonly number[];
}

/** Prediction of a whole rollout. */
export interface RolloutPrediction {
  readonly steps: readonly PredictedStep[];
  readonly outcome: PredictedOutcome;
  /** The fewest available replicas at any moment, the start included. */
  readonly lowestAvailable: number;
  /** The most live replicas at any moment, the start included. */
  readonly highestLive: number;
}

/**
 * Predicts a whole rollout with the decisions that `decideNextSteps` would make if nothing failed:
 * between two decisions every remaining replica becomes available, every stop is confirmed, and
 * silent nodes reconnect.
 * @param grants - Absent: the prediction ends at the first wait for a promotion or a time.
 */
export function predictRollout(
  input: RolloutObserved,
  grants?: PredictionGrants,
): RolloutPrediction {
  const state = new PredictedState(input);
  const canarySteps = (grants?.canarySteps ?? []).values();
  for (;;) {
    const decision = decideNextSteps(state.observed);
    if (decision.kind === 'converged') return state.toPrediction({ kind: 'completes' });
    if (decision.kind === 'steps') {
      state.applyDecision(decision.steps);
      state.settle();
      if (!isPredictedInBatches(state.observed)) continue;
      const batches = predictBatches(state.observed, state);
      if (batches.isComplete) return state.toPrediction({ kind: 'completes' });
      state.setReplicas(batches.getReplicas());
    } else if (decision.wakeOn.kind === 'permission' && grants !== undefined)
      state.grantPermission(canarySteps);
    else if (!state.isSettled) state.settle();
    else
      return state.toPrediction({
        kind: decision.wakeOn.kind === 'permission' ? 'waits' : 'stuck',
        reason: decision.reason,
      });
  }
}

/**
 * Predicts the steps of the first decision that has steps, with the assumptions of
 * {@link predictRollout}. Its cost does not depend on the length of the rollout.
 * @returns No steps when nothing happens before a permission or a change of the spec.
 */
export function predictFirstDecision(input: RolloutObserved): readonly PredictedStep[] {
  const state = new PredictedState(input);
  for (;;) {
    const decision = decideNextSteps(state.observed);
    if (decision.kind === 'steps') return state.applyDecision(decision.steps);
    if (decision.kind === 'converged' || state.isSettled) return [];
    state.settle();
  }
}

/**
 * Returns true for a rollout that may need one decision for each replica. Every other rollout needs
 * only a few decisions.
 */
const isPredictedInBatches = ({ strategy, paused }: RolloutObserved): boolean =>
  paused !== true && (strategy === undefined || strategy.kind === 'rollingUpdate');

/** The replicas as the predicted steps have left them. */
class PredictedState implements StepRecorder {
  observed: RolloutObserved;
  private readonly steps: PredictedStep[] = [];
  private decision = 0;
  private available = 0;
  private live = 0;
  private lowestAvailable: number;
  private highestLive: number;

  constructor(input: RolloutObserved) {
    this.observed = input;
    this.setReplicas(input.replicas.filter((replica) => !replica.lost).map(assumeConnected));
    this.lowestAvailable = this.available;
    this.highestLive = this.live;
  }

  get count(): number {
    return this.steps.length;
  }

  /** True when all replicas are available and none is stopping, so that time changes nothing. */
  get isSettled(): boolean {
    const { replicas, waiting = 0 } = this.observed;
    return (
      waiting === 0 &&
      replicas.every((replica) => replica.available && replica.desired === 'running')
    );
  }

  /** @returns All steps so far. */
  applyDecision(steps: readonly RolloutStep[]): readonly PredictedStep[] {
    const stoppedIds = new Set<string>(
      steps.map((step) => (step.kind === 'stopReplica' ? step.replicaId : '')),
    );
    const stopped = new Map<string, RolloutReplica>();
    for (const replica of this.observed.replicas)
      if (stoppedIds.has(replica.id)) stopped.set(replica.id, replica);
    const replicas = this.observed.replicas.map((replica): RolloutReplica =>
      stopped.has(replica.id) ? { ...replica, desired: 'stopped' } : replica,
    );
    for (const step of steps) {
      if (step.kind === 'createReplica')
        replicas.push({ ...createPredictedReplica(step, this.count), available: false });
      if (step.kind === 'switchVersion') this.switchActiveVersion(step.version);
      const before = step.kind === 'stopReplica' ? stopped.get(step.replicaId) : undefined;
      this.record(step, before !== undefined && isCountedAvailable(this.observed, before));
    }
    this.observed = { ...this.observed, replicas };
    this.endDecision();
    return this.steps;
  }

  record(step: PredictedStep['step'], stopsAvailable = false): void {
    if (step.kind === 'createReplica') this.live += 1;
    if (stopsAvailable) this.available -= 1;
    this.steps.push({ step, decision: this.decision, available: this.available, live: this.live });
    if (this.available < this.lowestAvailable) this.lowestAvailable = this.available;
    if (this.live > this.highestLive) this.highestLive = this.live;
  }

  endDecision(liveReplicas?: number): void {
    this.decision += 1;
    if (liveReplicas !== undefined) this.live = this.available = liveReplicas;
  }

  /** Confirms every stop and makes every other replica available. */
  settle(): void {
    const remaining: RolloutReplica[] = [];
    for (const replica of this.observed.replicas)
      if (replica.desired === 'running')
        remaining.push(replica.available ? replica : { ...replica, available: true });
    const { waiting = 0, alsoAvailable = 0 } = this.observed;
    if (waiting > 0)
      this.observed = { ...this.observed, waiting: 0, alsoAvailable: alsoAvailable + waiting };
    this.setReplicas(remaining);
  }

  setReplicas(replicas: readonly RolloutReplica[]): void {
    this.observed = { ...this.observed, replicas };
    const { waiting = 0, alsoAvailable = 0 } = this.observed;
    this.live = replicas.length + waiting + alsoAvailable;
    this.available =
      alsoAvailable + countWhere(replicas, (replica) => isCountedAvailable(this.observed, replica));
  }

  /**
   * Grants the current wait: the next canary step, a promotion, or the end of the pause after a
   * switch.
   */
  grantPermission(canarySteps: Iterator<number>): void {
    const { strategy } = this.observed;
    if (strategy?.kind === 'blueGreen') {
      const { activeVersion } = strategy;
      this.observed = {
        ...this.observed,
        strategy: { kind: 'blueGreen', activeVersion, maySwitch: true },
      };
    } else if (strategy?.kind === 'rollingUpdate') {
      this.record({ kind: 'stepReached', updated: strategy.updated ?? this.observed.want });
      this.endDecision();
      const { done, value } = canarySteps.next();
      this.observed = {
        ...this.observed,
        strategy: { kind: 'rollingUpdate', ...(done === true ? {} : { updated: value }) },
      };
    }
  }

  toPrediction(outcome: PredictedOutcome): RolloutPrediction {
    return {
      steps: this.steps,
      outcome,
      lowestAvailable: this.lowestAvailable,
      highestLive: this.highestLive,
    };
  }

  private switchActiveVersion(version: number): void {
    const { strategy } = this.observed;
    if (strategy?.kind !== 'blueGreen') return;
    this.observed = { ...this.observed, strategy: { ...strategy, activeVersion: version } };
    this.available = countWhere(this.observed.replicas, (replica) =>
      isCountedAvailable(this.observed, replica),
    );
  }
}

/** Returns true when a replica is available and counts for `minAvailable`. */
function isCountedAvailable({ strategy }: RolloutObserved, replica: RolloutReplica): boolean {
  const counts = strategy?.kind !== 'blueGreen' || replica.version === strategy.activeVersion;
  return counts && replica.available && replica.forced !== true && isStaying(replica);
}

const assumeConnected = (replica: RolloutReplica): RolloutReplica =>
  replica.notYetAvailable === true
    ? { ...replica, available: true, notYetAvailable: false }
    : replica;
