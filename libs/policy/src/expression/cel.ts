import { celEnv, isCelError, parse, plan, type CelFunc, type CelInput } from '@bufbuild/cel';
import type { Expr } from '@bufbuild/cel-spec/cel/expr/syntax_pb.js';
import { createRegistry } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import { errorMessageOf } from '@cloudless/base';
import type { PolicySubject } from '../model.js';
import { utf8Length } from '../rules/config-reader.js';
import { boundExpression, type Variables } from './bound-expression.js';
import { Budget, EXPRESSION_LIMITS } from './budget.js';
import { checkNesting } from './check-nesting.js';
import { compilePattern, meteredFunctions, type Patterns } from './metered-functions.js';
import { VALUE } from './value-type.js';

/** Evaluates an expression with the values of its variables. */
export type Evaluate<Values> = (values: Values, budget: Budget) => unknown;

/** Evaluator of the expressions of policies. */
export interface ExpressionEngine {
  /**
   * Checks and prepares an expression.
   * @returns A function that spends the budget for each of its steps, and throws when the evaluation
   *   fails or the budget is spent.
   * @throws An error with a message for people.
   */
  readonly compile: (source: string) => Evaluate<PolicySubject>;
}

const REGISTRY = createRegistry(WorkloadSpecSchema);
const SUBJECT_VARIABLES: Variables = new Map([
  ['spec', { kind: 'message', message: WorkloadSpecSchema }],
  // `namespace` alone is a reserved word of CEL.
  ['workload_namespace', VALUE],
  ['workload_name', VALUE],
]);

/** Evaluates expressions in CEL over the workload. */
export const celEngine: ExpressionEngine = {
  compile: (source) => {
    const evaluate = compileCel(source, SUBJECT_VARIABLES);
    return ({ spec, namespace, name }, budget) =>
      evaluate({ spec, workload_namespace: namespace, workload_name: name }, budget);
  },
};

/** Options of {@link compileCel}. */
export interface CelOptions {
  /**
   * Checks the syntax tree before the bounds are checked, and may change the tree. Throws to refuse
   * the expression.
   */
  readonly inspect?: (root: Expr) => void;
  /** Functions in place of those of CEL with the same name and types. */
  readonly functions?: readonly CelFunc[];
}

/**
 * Checks an expression in CEL, and prepares its evaluation.
 * @param variables - The variables that the expression may use.
 * @returns A function that returns the value of the expression. It throws `BudgetSpentError`
 *   when the budget is spent, even where the expression would hide the error, and any other error of
 *   the evaluation.
 * @throws An error with a message for people.
 */
export function compileCel(
  source: string,
  variables: Variables,
  { inspect, functions = [] }: CelOptions = {},
): Evaluate<Readonly<Record<string, CelInput>>> {
  const size = utf8Length(source);
  if (size > EXPRESSION_LIMITS.sourceBytes)
    throw new Error(`has ${size} bytes; at most ${EXPRESSION_LIMITS.sourceBytes} are allowed`);
  checkNesting(source);
  const { expr } = parse(source);
  if (expr === undefined) throw new Error('the expression is empty');
  inspect?.(expr);
  const patterns: Patterns = new Map();
  boundExpression(expr, variables, (text) => patterns.set(text, compilePattern(text)));
  let budget = new Budget(0);
  const funcs = [...meteredFunctions(() => budget, patterns), ...functions];
  const evaluate = plan(celEnv({ registry: REGISTRY, funcs }), expr);
  return (values, budgetOfCall) => {
    budget = budgetOfCall;
    const result = evaluate(values);
    if (budget.isSpent) budget.spend(0);
    if (isCelError(result)) throw new Error(errorMessageOf(result), { cause: result });
    return result;
  };
}
