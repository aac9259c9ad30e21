import type { InjectedBug } from '../sim-cluster/injected-bug.js';
import type { WorldPlan } from '../faults/fault-plan.js';

/** A bug known from the field, injected into whole worlds, and the checker that must find it. */
export interface KnownBug {
  /** Short description of the failure. */
  readonly name: string;
  /** The failures that users of other orchestrators reported. */
  readonly story: string;
  /** Description of the injection, with the safeguards of the product that are disabled for it. */
  readonly injection: string;
  /** Creates the injected replacements for one world; worlds share nothing. */
  readonly inject: () => InjectedBug;
  /** Unusual conditions of the world that are not a bug: present with and without the bug. */
  readonly circumstances?: () => InjectedBug;
  /** Parameters of the world, with the weights of its faults. */
  readonly plan: Pick<WorldPlan, 'weights'> & Partial<WorldPlan>;
  /** File of the checker, relative to `libs/simulation/src`. */
  readonly checker: string;
  /** Matches the violation that the checker reports. */
  readonly expectedViolation: RegExp;
  /**
   * Seed of a world that finds the bug. Random streams change with the code: `nx run
   * simulation:bug-catalogue -- --search` finds new seeds.
   */
  readonly seed: number;
}
