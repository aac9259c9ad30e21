import { celFunc, CelScalar, type CelFunc } from '@bufbuild/cel';
import { errorMessageOf } from '@cloudless/base';
import type { Variables } from '../expression/bound-expression.js';
import { Budget } from '../expression/budget.js';
import { compileCel } from '../expression/cel.js';
import { VALUE } from '../expression/value-type.js';
import { checkGate } from './check-gate.js';
import { GATE_FIGURES, STABLE_PREFIX } from './gate-figures.js';

/**
 * Result of a gate. `noData` when a figure that the gate uses is missing, or its evaluation fails,
 * with the reason for people.
 */
export type GateResult =
  { readonly kind: 'passed' | 'failed' } | { readonly kind: 'noData'; readonly reason: string };

/** A gate of a canary step that can be evaluated. */
export interface CompiledGate {
  /** Names of the figures that the gate uses, in the order of its text, such as `stable.p99_ms`. */
  readonly figures: readonly string[];
  /**
   * Evaluates the gate. Never throws.
   * @param readFigure - Returns a figure by its name; undefined when the figure is missing. A missing
   *   figure makes the result `noData`, also when the result would not depend on the figure.
   */
  readonly evaluate: (readFigure: (name: string) => number | undefined) => GateResult;
}

const STABLE = STABLE_PREFIX.slice(0, -1);
const VARIABLES: Variables = new Map([
  ...GATE_FIGURES.map((name) => [name, VALUE] as const),
  [STABLE, { kind: 'map', value: VALUE }],
]);

const { DOUBLE } = CelScalar;

/** Division that fails for 0, instead of the infinity or NaN of CEL, which comparisons accept. */
const FUNCTIONS = [
  celFunc('_/_', [DOUBLE, DOUBLE], DOUBLE, (left, right) => {
    if (right === 0) throw new Error('division by 0');
    return left / right;
  }),
] as unknown as CelFunc[];

/**
 * Checks a gate of a canary step, and prepares its evaluation.
 * @throws An error with a message for people when the gate cannot be used: it is no CEL, too large,
 *   uses unknown figures, or its result is not a boolean.
 */
export function compileGate(source: string): CompiledGate {
  let figures: readonly string[] = [];
  const evaluate = compileCel(source, VARIABLES, {
    inspect: (root) => (figures = checkGate(root)),
    functions: FUNCTIONS,
  });
  return {
    figures,
    evaluate: (readFigure) => {
      const own: Record<string, number> = {};
      const stable = new Map<string, number>();
      const missing: string[] = [];
      for (const name of figures) {
        const value = readFigure(name);
        if (value === undefined || !Number.isFinite(value)) missing.push(name);
        else if (name.startsWith(STABLE_PREFIX))
          stable.set(name.slice(STABLE_PREFIX.length), value);
        else own[name] = value;
      }
      if (missing.length > 0) return { kind: 'noData', reason: `no data: ${missing.join(', ')}` };
      try {
        const result = evaluate({ ...own, [STABLE]: stable }, new Budget());
        if (typeof result === 'boolean') return { kind: result ? 'passed' : 'failed' };
        return { kind: 'noData', reason: `the result is ${typeof result}, not true or false` };
      } catch (reason) {
        return { kind: 'noData', reason: errorMessageOf(reason) };
      }
    },
  };
}
