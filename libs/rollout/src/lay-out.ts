import type { RolloutStep, WaitReason } from './decision.js';
import { layOutBatches, plannedReplica, type Recorder } from './lay-out-batches.js';
import { nextSteps } from './next-steps.js';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { countOf, isStaying } from './tally.js';

/** One predicted step. */
export interface LaidOutStep {
  /** The step, or the wait at a canary step, which then continues. */
  readonly step: RolloutStep | { readonly kind: 'stepReached'; readonly updated: number };
  /**
   * Index of the decision that the step belongs to. The steps of one decision may happen in any
   * order.
   */
  readonly decision: number;
  /**
   * Available replicas after this step, if new replicas become available before the next decision;
   * under blue/green only those of the active version.
   */
  readonly ready: number;
  /** Live replicas after this step, stopping ones included. */
  readonly live: number;
}

/**
 * How a rollout ends when nothing fails: it completes, waits for a promotion or time that was not
 * granted, or is stuck without a possible step.
 */
export type LayOutVerdict =
  | { readonly kind: 'completes' }
  | { readonly kind: 'waits' | 'stuck'; readonly reason: WaitReason };

/**
 * Assumptions of a prediction: promotions are granted, and the waits of canary steps and after a
 * switch pass.
 */
export interface LayOutGrants {
  /**
   * The canary steps after `strategy.updated`, in order, each as a number of updated replicas. All
   * replicas follow after the last one. Default none.
   */
  readonly stages?: readonly number[];
}

/** The prediction of a whole rollout. */
export interface LaidOut {
  readonly steps: readonly LaidOutStep[];
  readonly verdict: LayOutVerdict;
  /** The fewest available replicas at any moment, the start included. */
  readonly lowestReady: number;
  /** The most live replicas at any moment, the start included. */
  readonly highestLive: number;
}

/**
 * Predicts a whole rollout with the decisions that `decideNextSteps` would make if nothing failed:
 * between two decisions every remaining replica becomes available, every stop is confirmed, and
 * silent nodes reconnect.
 * @param grants - Absent: the prediction ends where a permission is needed.
 */
export function layOut(input: RolloutObserved, grants?: LayOutGrants): LaidOut {
  const ahead = new Ahead(input);
  const stages = (grants?.stages ?? []).values();
  for (;;) {
    const decision = nextSteps(ahead.observed);
    if (decision.kind === 'converged') return ahead.laidOut({ kind: 'completes' });
    if (decision.kind === 'steps') {
      ahead.take(decision.steps);
      ahead.settle();
      if (!goesInBatches(ahead.observed)) continue;
      const batches = layOutBatches(ahead.observed, ahead);
      if (batches.isEnd) return ahead.laidOut({ kind: 'completes' });
      ahead.become(batches.standing());
    } else if (decision.wakeOn.kind === 'permission' && grants !== undefined) ahead.goOn(stages);
    else if (!ahead.isSettled) ahead.settle();
    else
      return ahead.laidOut({
        kind: decision.wakeOn.kind === 'permission' ? 'waits' : 'stuck',
        reason: decision.reason,
      });
  }
}

/**
 * Tells whether the rest may need one decision for each replica. Every other rollout needs only a
 * few.
 */
const goesInBatches = ({ strategy, paused }: RolloutObserved): boolean =>
  paused !== true && (strategy === undefined || strategy.kind === 'rollingUpdate');

/** The replicas as the predicted steps have left them. */
class Ahead implements Recorder {
  observed: RolloutObserved;
  private readonly steps: LaidOutStep[] = [];
  private decision = 0;
  private ready = 0;
  private live = 0;
  private lowestReady: number;
  private highestLive: number;

  constructor(input: RolloutObserved) {
    this.observed = input;
    this.become(input.replicas.filter((replica) => !replica.lost).map(heard));
    this.lowestReady = this.ready;
    this.highestLive = this.live;
  }

  get count(): number {
    return this.steps.length;
  }

  /** Whether time alone changes nothing any more. */
  get isSettled(): boolean {
    return this.observed.replicas.every(
      (replica) => replica.ready && replica.desired === 'running',
    );
  }

  take(steps: readonly RolloutStep[]): void {
    const ids = new Set<string>(
      steps.map((step) => (step.kind === 'stopReplica' ? step.replicaId : '')),
    );
    const stopped = new Map<string, RolloutReplica>();
    for (const replica of this.observed.replicas)
      if (ids.has(replica.id)) stopped.set(replica.id, replica);
    const replicas = this.observed.replicas.map((one): RolloutReplica =>
      stopped.has(one.id) ? { ...one, desired: 'stopped' } : one,
    );
    for (const step of steps) {
      if (step.kind === 'createReplica')
        replicas.push({ ...plannedReplica(step, this.count), ready: false });
      if (step.kind === 'switchVersion') this.switchTo(step.version);
      const before = step.kind === 'stopReplica' ? stopped.get(step.replicaId) : undefined;
      this.record(step, before !== undefined && isCounted(this.observed, before));
    }
    this.observed = { ...this.observed, replicas };
    this.endDecision();
  }

  record(step: LaidOutStep['step'], stopsReady = false): void {
    if (step.kind === 'createReplica') this.live += 1;
    if (stopsReady) this.ready -= 1;
    this.steps.push({ step, decision: this.decision, ready: this.ready, live: this.live });
    if (this.ready < this.lowestReady) this.lowestReady = this.ready;
    if (this.live > this.highestLive) this.highestLive = this.live;
  }

  endDecision(standing?: number): void {
    this.decision += 1;
    if (standing !== undefined) this.live = this.ready = standing;
  }

  /** Confirms every stop and makes every other replica available. */
  settle(): void {
    const standing: RolloutReplica[] = [];
    for (const replica of this.observed.replicas)
      if (replica.desired === 'running')
        standing.push(replica.ready ? replica : { ...replica, ready: true });
    this.become(standing);
  }

  become(replicas: readonly RolloutReplica[]): void {
    this.observed = { ...this.observed, replicas };
    this.live = replicas.length;
    this.ready = countOf(replicas, (replica) => isCounted(this.observed, replica));
  }

  /**
   * Grants the current wait: the next canary step, a promotion, or the end of the pause after a
   * switch.
   */
  goOn(stages: Iterator<number>): void {
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
      const { done, value } = stages.next();
      this.observed = {
        ...this.observed,
        strategy: { kind: 'rollingUpdate', ...(done === true ? {} : { updated: value }) },
      };
    }
  }

  laidOut(verdict: LayOutVerdict): LaidOut {
    return {
      steps: this.steps,
      verdict,
      lowestReady: this.lowestReady,
      highestLive: this.highestLive,
    };
  }

  private switchTo(version: number): void {
    const { strategy } = this.observed;
    if (strategy?.kind !== 'blueGreen') return;
    this.observed = { ...this.observed, strategy: { ...strategy, activeVersion: version } };
    this.ready = countOf(this.observed.replicas, (replica) => isCounted(this.observed, replica));
  }
}

/** Tells whether a replica is available and counts for `minAvailable`. */
function isCounted({ strategy }: RolloutObserved, replica: RolloutReplica): boolean {
  const counts = strategy?.kind !== 'blueGreen' || replica.version === strategy.activeVersion;
  return counts && replica.ready && replica.forced !== true && isStaying(replica);
}

const heard = (replica: RolloutReplica): RolloutReplica =>
  replica.unproven === true ? { ...replica, ready: true, unproven: false } : replica;
