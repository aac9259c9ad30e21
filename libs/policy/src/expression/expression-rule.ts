import { errorMessageOf } from '@cloudless/base';
import type { RuleConfigs } from '../model.js';
import { SATISFIED, type RuleCheck } from '../rules/rule-definition.js';
import { Budget } from './budget.js';
import type { ExpressionEngine } from './cel.js';

/**
 * Prepares the check of an EXPRESSION rule. The check throws when the evaluation fails, its budget is
 * spent, or its result is neither true nor false.
 * @throws An error with a message for people when the expression cannot be used.
 */
export function createExpressionCheck(
  { expression, message }: RuleConfigs['EXPRESSION'],
  engine: ExpressionEngine,
): RuleCheck {
  const evaluate = engine.compile(expression);
  const findings = [
    {
      field: 'spec',
      found: 'a workload for which the expression is false',
      allowed: message ?? expression,
    },
  ];
  return (subject) => {
    const budget = new Budget();
    const result = evaluate(subject, budget);
    // An engine may have hidden the error of a spent budget.
    if (budget.isSpent) budget.spend(0);
    if (result === true) return SATISFIED;
    if (result === false) return findings;
    throw new Error(
      `the result is ${errorMessageOf(result)} (${typeof result}), not true or false`,
    );
  };
}
