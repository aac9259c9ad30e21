import { toReplicaId } from '@cloudless/base';
import { nextSteps, type RolloutStep, type WaitReason } from './next-steps.js';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { movesOf, tallyOf, type Counts, type Tally } from './tally.js';

/** One step of a rollout laid out ahead. */
export interface LaidOutStep {
  readonly step: RolloutStep;
  /** Index of the decision it belongs to; the steps of one decision may be taken in any order. */
  readonly decision: number;
  /** Freshly ready replicas guaranteed after this step. */
  readonly ready: number;
  /** Live replicas after this step, those still stopping included. */
  readonly live: number;
}

/** How a rollout ends when nothing fails. */
export type LayOutVerdict = { readonly kind: 'completes' } | { readonly kind: 'stuck'; readonly reason: WaitReason };

/** The whole rollout ahead. */
export interface LaidOut {
  readonly steps: readonly LaidOutStep[];
  readonly verdict: LayOutVerdict;
  /** The fewest freshly ready replicas at any moment, the start included. */
  readonly lowestReady: number;
  /** The most live replicas at any moment, the start included. */
  readonly highestLive: number;
}

/**
 * Lays out a whole rollout by taking every decision that `nextSteps` would take, in a world where nothing fails: between two
 * decisions every replica that stays becomes ready, every stop is confirmed, and silent nodes turn out to be alive.
 * Linear in replicas and steps, as the model counts instead of sorting the world anew for each decision.
 */
export function layOut(input: RolloutObserved): LaidOut {
  const start = input.replicas.filter((replica) => !replica.lost).map(heard);
  const tally = tallyOf({ ...input, replicas: start });
  const model = new Model(tally, start.filter((replica) => replica.desired === 'stopped' && replica.draining).length);
  let taken = 0;
  for (let decision = 0; ; decision += 1) {
    const { creates, readyStops } = movesOf(input, model.counts);
    for (let created = 0; created < creates; created += 1) model.create(input.version, decision);
    if (decision === 0) for (const victim of tally.unreadyVictims) model.stop(victim, decision);
    for (const victim of tally.readyVictims.slice(taken, taken + readyStops)) model.stop(victim, decision);
    taken += readyStops;
    if (model.settled) break; // no step was taken, and time brings no other
    model.settle();
  }
  return {
    steps: model.steps,
    verdict: verdictOf(input, start, model.steps),
    lowestReady: model.lowestReady,
    highestLive: model.highestLive,
  };
}

/** A world that only counts, so that a decision costs the same however many replicas there are. */
class Model {
  readonly steps: LaidOutStep[] = [];
  readonly counts: Writable<Counts>;
  lowestReady: number;
  highestLive: number;

  constructor(
    tally: Tally,
    private leavingDraining: number,
  ) {
    const { live, ready, keepers, leaving, leavingReady, draining, surplusReady, drainingReady } = tally;
    const outdatedReady = tally.readyVictims.length - surplusReady - drainingReady;
    const unreadyStops = tally.unreadyVictims.length;
    this.counts = {
      live,
      ready,
      keepers,
      leaving,
      leavingReady,
      draining,
      surplusReady,
      drainingReady,
      outdatedReady,
      unreadyStops,
    };
    this.lowestReady = ready;
    this.highestLive = live;
  }

  /** Whether time alone changes nothing more. */
  get settled(): boolean {
    return this.counts.leaving === 0 && this.counts.ready === this.counts.live;
  }

  create(version: number, decision: number): void {
    this.counts.live += 1;
    this.counts.keepers += 1;
    this.record({ kind: 'createReplica', version }, decision);
  }

  stop(replica: RolloutReplica, decision: number): void {
    const { counts } = this;
    counts.leaving += 1;
    if (replica.draining) this.leavingDraining += 1;
    if (replica.ready) {
      counts.ready -= 1;
      counts.leavingReady += 1;
      // The same order as in `readyVictims`.
      if (counts.surplusReady > 0) counts.surplusReady -= 1;
      else if (counts.drainingReady > 0) counts.drainingReady -= 1;
      else counts.outdatedReady -= 1;
    }
    this.record({ kind: 'stopReplica', replicaId: replica.id }, decision);
  }

  /** Lets every stop be confirmed and everything else become ready. */
  settle(): void {
    const { counts } = this;
    counts.live -= counts.leaving;
    counts.draining -= this.leavingDraining;
    this.leavingDraining = counts.leaving = counts.leavingReady = counts.unreadyStops = 0;
    counts.ready = counts.live;
  }

  private record(step: RolloutStep, decision: number): void {
    const { ready, live } = this.counts;
    this.steps.push({ step, decision, ready, live });
    this.lowestReady = Math.min(this.lowestReady, ready);
    this.highestLive = Math.max(this.highestLive, live);
  }
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Asks `nextSteps` about the world that the steps lead to. */
function verdictOf(input: RolloutObserved, start: readonly RolloutReplica[], steps: readonly LaidOutStep[]): LayOutVerdict {
  const stopped = new Set(steps.map(({ step }) => (step.kind === 'stopReplica' ? step.replicaId : undefined)));
  const left = start.filter((replica) => replica.desired === 'running' && !stopped.has(replica.id));
  const created = steps.filter(({ step }) => step.kind === 'createReplica');
  const replicas = [
    ...left.map((replica) => ({ ...replica, ready: true })),
    ...created.map((_, index) => plannedReplica(input, index)),
  ];
  const decision = nextSteps({ ...input, replicas });
  return decision.kind === 'waiting' ? { kind: 'stuck', reason: decision.reason } : { kind: 'completes' };
}

function plannedReplica(input: RolloutObserved, index: number): RolloutReplica {
  const id = toReplicaId(`planned-${index}`);
  return { id, version: input.version, ready: true, desired: 'running', lost: false, draining: false, createdSequence: index };
}

const heard = (replica: RolloutReplica): RolloutReplica =>
  replica.unproven === true ? { ...replica, ready: true, unproven: false } : replica;
