import { assert } from '@cloudless/base';
import {
  nextSteps,
  resolveLimits,
  type RolloutDecision,
  type RolloutLimitsSpec,
  type RolloutObserved,
  type RolloutReplica,
  type RolloutStep,
} from '../index.js';
import { aReplica } from './builders.js';

/** A workload whose replicas live, fail and come back as a test wants; every step taken is checked against the promises. */
export class World {
  steps = 0;
  private sequence = 1_000;
  private replicas: RolloutReplica[];

  constructor(private observed: RolloutObserved) {
    this.replicas = [...observed.replicas];
  }

  view(): RolloutObserved {
    return { ...this.observed, replicas: this.replicas };
  }

  get live(): number {
    return this.replicas.filter((replica) => !replica.lost).length;
  }

  get ready(): number {
    return this.replicas.filter((replica) => !replica.lost && replica.desired === 'running' && replica.ready).length;
  }

  scale(spec: RolloutLimitsSpec): void {
    this.observed = { ...this.observed, ...resolveLimits(spec) };
  }

  update(version: number): void {
    this.observed = { ...this.observed, version };
  }

  change(index: number, changes: Partial<RolloutReplica>): void {
    const at = index % Math.max(1, this.replicas.length);
    const replica = this.replicas[at];
    if (replica !== undefined) this.replicas[at] = { ...replica, ...changes };
  }

  /** The replica fails for good, or its stop is confirmed. */
  remove(index: number): void {
    this.replicas.splice(index % Math.max(1, this.replicas.length), 1);
  }

  /** Time without failures: what stays becomes ready, what leaves is gone, who is silent is heard again. */
  settle(): void {
    this.replicas = this.replicas
      .filter((replica) => replica.lost || replica.desired === 'running')
      .map((replica) => ({ ...replica, ready: true, unproven: false }));
  }

  /** Takes the first `count` steps of the next decision, rotated by `turn`; checks each. */
  take(turn = 0, count = Infinity): RolloutDecision {
    const { want, maxSurge, minAvailable } = this.observed;
    const decision = nextSteps(this.view());
    if (decision.kind !== 'steps') return decision;
    const ceiling = Math.max(
      this.live,
      want + maxSurge + this.replicas.filter((replica) => !replica.lost && replica.draining).length,
    );
    const keepersBefore = this.keepers();
    const { length } = decision.steps;
    for (let index = 0; index < Math.min(length, count); index += 1) {
      const step = decision.steps[(index + turn) % length];
      assert(step !== undefined, 'an index within the decision');
      this.apply(step, minAvailable);
      assert(this.live <= ceiling, `${this.live} live, ceiling ${ceiling}`);
    }
    assert(this.keepers() >= Math.min(want, keepersBefore), 'a replica that shall stay was stopped');
    return decision;
  }

  private keepers(): number {
    const { paused, version } = this.observed;
    return this.replicas.filter(
      (r) => !r.lost && !r.draining && r.desired === 'running' && (paused === true || r.version === version),
    ).length;
  }

  private apply(step: RolloutStep, minAvailable: number): void {
    this.steps += 1;
    if (step.kind === 'createReplica') {
      this.replicas.push(aReplica((this.sequence += 1), { version: step.version, ready: false }));
      return;
    }
    const index = this.replicas.findIndex((replica) => replica.id === step.replicaId);
    const replica = this.replicas[index];
    assert(replica !== undefined && replica.desired === 'running' && !replica.lost, 'only a live replica that runs is stopped');
    this.change(index, { desired: 'stopped' });
    const mayServe = replica.ready || replica.unproven === true;
    assert(!mayServe || this.ready >= minAvailable, `${this.ready} ready, floor ${minAvailable}`);
  }
}
