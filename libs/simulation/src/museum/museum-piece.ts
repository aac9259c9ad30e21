import type { Planted } from '../planted.js';
import type { WorldPlan } from '../faults/fault-plan.js';

/** A bug that has hurt others, planted into whole worlds, and the checker that has to find it. */
export interface MuseumPiece {
  /** What went wrong, as a phrase. */
  readonly name: string;
  /** What happened in the field. */
  readonly story: string;
  /** How it is planted, and which defences of the product are taken away for it. */
  readonly plant: string;
  /** Makes the plant for one world: worlds share nothing. */
  readonly planted: () => Planted;
  /** What is unusual in this world and no bug: there with and without the plant. */
  readonly circumstances?: () => Planted;
  /** The kind of world, with the weights of its faults. */
  readonly plan: Pick<WorldPlan, 'weights'> & Partial<WorldPlan>;
  /** The checker, by file. */
  readonly checker: string;
  /** What the checker says. */
  readonly found: RegExp;
  /**
   * A world that finds it. Random streams change with the code: `nx run simulation:museum --
   * --search` gives new ones.
   */
  readonly seed: number;
}
