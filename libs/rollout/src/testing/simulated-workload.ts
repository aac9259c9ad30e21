import { definedFields, assert } from '@cloudless/base';
import {
  decideNextSteps,
  resolveLimits,
  type RolloutDecision,
  type RolloutLimitsSpec,
  type RolloutObserved,
  type RolloutReplica,
  type RolloutStep,
} from '../index.js';
import { aReplica } from './builders.js';
import { checkDecision, checkStep } from './invariants.js';

/**
 * A simulated workload whose replicas fail and recover as a test demands. Every applied step is
 * checked against the invariants.
 */
export class SimulatedWorkload {
  /** Number of applied steps. */
  steps = 0;
  private sequence = 1_000;
  private replicas: readonly RolloutReplica[];

  constructor(private observed: RolloutObserved) {
    this.replicas = observed.replicas;
  }

  observe(): RolloutObserved {
    return { ...this.observed, replicas: this.replicas };
  }

  get live(): readonly RolloutReplica[] {
    return this.replicas.filter((replica) => !replica.lost);
  }

  scale(spec: RolloutLimitsSpec): void {
    if (this.observed.globalTargets === undefined) this.update(resolveLimits(spec));
  }

  setGlobalTargets(globalTargets: readonly string[], spec: RolloutLimitsSpec): void {
    if (this.observed.globalTargets !== undefined)
      this.update({ globalTargets, ...resolveLimits({ ...spec, desired: globalTargets.length }) });
  }

  /** Changes the input of the planner. */
  update(changes: Partial<RolloutObserved>): void {
    this.observed = { ...this.observed, ...changes };
  }

  /** @param index - Taken modulo the number of replicas. */
  changeReplica(index: number, changes: Partial<RolloutReplica>): void {
    const position = index % Math.max(1, this.replicas.length);
    this.replicas = this.replicas.map((replica, other) =>
      other === position ? { ...replica, ...changes } : replica,
    );
  }

  /**
   * Removes a replica, as after its failure or the confirmation of its stop.
   * @param index - Taken modulo the number of replicas.
   */
  removeReplica(index: number): void {
    const position = index % Math.max(1, this.replicas.length);
    this.replicas = this.replicas.filter((_, other) => other !== position);
  }

  /**
   * Lets time pass without failures: remaining replicas become available, stops are confirmed, and
   * silent nodes reconnect.
   */
  settle(): void {
    this.replicas = this.replicas
      .filter((replica) => replica.lost || replica.desired === 'running')
      .map((replica): RolloutReplica => ({ ...replica, available: true, notYetAvailable: false }));
  }

  /** Grants every permission: the last canary step, the switch, the end of a pause. */
  grantPermission(): void {
    const { strategy } = this.observed;
    if (strategy?.kind === 'rollingUpdate') this.update({ strategy: { kind: 'rollingUpdate' } });
    if (strategy?.kind === 'blueGreen') {
      const { activeVersion } = strategy;
      this.update({ strategy: { kind: 'blueGreen', activeVersion, maySwitch: true } });
    }
  }

  /**
   * Applies the first `count` steps of the next decision, and checks each.
   * @param turn - Rotates the steps before: the first applied step has this index.
   */
  applyNextDecision(turn = 0, count = Infinity): RolloutDecision {
    const before = this.observe();
    const decision = decideNextSteps(before);
    if (decision.kind !== 'steps') return decision;
    const { length } = decision.steps;
    assert(length > 0, 'a decision without steps is a reason to wait');
    for (let index = 0; index < Math.min(length, count); index += 1) {
      const step = decision.steps[(index + turn) % length];
      assert(step !== undefined, 'an index within the decision');
      const beforeStep = this.observe();
      this.applyStep(step);
      checkStep(beforeStep, step, this.observe());
    }
    checkDecision(before, decision.steps, this.observe(), count >= length);
    return decision;
  }

  /** Applies one step without a check. */
  applyStep(step: RolloutStep): void {
    this.steps += 1;
    if (step.kind === 'createReplica') {
      const { version, nodeId } = step;
      const fields: Partial<RolloutReplica> = {
        version,
        available: false,
        ...definedFields({ nodeId }),
      };
      this.replicas = [...this.replicas, aReplica((this.sequence += 1), fields)];
    } else if (step.kind === 'stopReplica') {
      this.changeReplica(
        this.replicas.findIndex(({ id }) => id === step.replicaId),
        { desired: 'stopped' },
      );
    } else {
      const { strategy } = this.observed;
      assert(strategy?.kind === 'blueGreen', 'only blue/green switches');
      this.update({ strategy: { ...strategy, activeVersion: step.version } });
    }
  }
}
