import fc from 'fast-check';
import { InvalidInputError } from '@cloudless/base';
import { compilePolicy } from './compile-policy.js';
import type { Budget } from './expression/budget.js';
import type { ExpressionEngine } from './expression/cel.js';
import type { Policy, PolicyAction, PolicySubject, Verdict } from './model.js';
import { createPolicySet, evaluatePolicies, formatViolation } from './policy-set.js';
import { aPolicy, aRule, aSubject } from './testing/builders.js';

/** Results that an engine must not return, or never returns, by the name of the expression. */
const FAILURE_RESULTS: Readonly<Record<string, (budget: Budget) => unknown>> = {
  throw: () => {
    throw new Error('broken');
  },
  loop: (budget) => {
    for (;;) budget.spend(1);
  },
  'hidden loop': (budget) => {
    try {
      for (;;) budget.spend(1);
    } catch {
      return true;
    }
  },
  text: () => 'true',
  nothing: () => undefined,
};
const FAILURES = Object.keys(FAILURE_RESULTS);

/** Expressions whose result a test chooses: `true`, `false`, or the name of a failure. */
const fakeEngine: ExpressionEngine = {
  compile: (source) => (_subject, budget) => {
    const fail = FAILURE_RESULTS[source];
    return fail === undefined ? source === 'true' : fail(budget);
  },
};

function aVote(action: PolicyAction, result: string, changes: Partial<Policy> = {}): Policy {
  const rules = [aRule({ type: 'EXPRESSION', config: { expression: result } })];
  return aPolicy({ name: `p-${action.toLowerCase()}`, action, rules, ...changes });
}

function decide(
  policies: readonly Policy[],
  defaultDecision: Verdict['decision'] = 'ALLOW',
  subject: PolicySubject = aSubject(),
): Verdict {
  const compiled = policies.map((policy) => compilePolicy(policy, { engine: fakeEngine }));
  return evaluatePolicies(createPolicySet(compiled, defaultDecision), subject);
}

describe('a decision', () => {
  it.each([
    ['of no policy is the default', [], 'DENY', { decision: 'DENY', byDefault: true }],
    [
      'of a DENY policy that is violated denies',
      [aVote('DENY', 'false')],
      'ALLOW',
      { decision: 'DENY', byDefault: false, policy: 'p-deny' },
    ],
    [
      'of a DENY policy that is satisfied allows, whatever the default',
      [aVote('DENY', 'true')],
      'DENY',
      { decision: 'ALLOW', byDefault: false },
    ],
    [
      'of an ALLOW policy that is satisfied allows',
      [aVote('ALLOW', 'true')],
      'DENY',
      { decision: 'ALLOW', byDefault: false, policy: 'p-allow' },
    ],
    [
      'of an ALLOW policy that is not satisfied denies, whatever the default',
      [aVote('ALLOW', 'false')],
      'ALLOW',
      { decision: 'DENY', byDefault: false, policy: 'p-allow' },
    ],
    [
      'at equal priority is that of DENY',
      [aVote('ALLOW', 'true'), aVote('DENY', 'false')],
      'ALLOW',
      { decision: 'DENY', policy: 'p-deny' },
    ],
    [
      'is that of ALLOW with a higher priority',
      [aVote('ALLOW', 'true', { priority: 1 }), aVote('DENY', 'false')],
      'DENY',
      { decision: 'ALLOW', policy: 'p-allow' },
    ],
    [
      'is that of DENY with a higher priority',
      [aVote('ALLOW', 'true'), aVote('DENY', 'false', { priority: 1 })],
      'ALLOW',
      { decision: 'DENY', policy: 'p-deny' },
    ],
    [
      'of an ALLOW policy makes up for another that is not satisfied',
      [aVote('ALLOW', 'false', { priority: 1 }), aVote('ALLOW', 'true', { name: 'other' })],
      'DENY',
      { decision: 'ALLOW', policy: 'other' },
    ],
    [
      'ignores a policy that is not enabled',
      [aVote('DENY', 'false', { enabled: false })],
      'ALLOW',
      { decision: 'ALLOW', byDefault: true },
    ],
    [
      'ignores a policy of another namespace',
      [aVote('DENY', 'false', { namespace: 'other' })],
      'ALLOW',
      { decision: 'ALLOW', byDefault: true },
    ],
    [
      'counts a policy of the namespace',
      [aVote('DENY', 'false', { namespace: 'default' })],
      'ALLOW',
      { decision: 'DENY', byDefault: false },
    ],
    [
      'of an AUDIT policy is the default',
      [aVote('AUDIT', 'false')],
      'DENY',
      { decision: 'DENY', byDefault: true },
    ],
  ] as const)('%s', (_title, policies, defaultDecision, expected) => {
    expect(decide(policies, defaultDecision)).toMatchObject(expected);
  });

  it('ignores a policy whose conditions are not met', () => {
    const condition = { field: 'name', operator: 'EQUALS', value: 'other' } as const;
    const rule = { ...aRule({ type: 'PRIVILEGED_MODE', config: {} }), conditions: [condition] };
    const subject = aSubject({ security: { privileged: true } });
    expect(decide([aPolicy({ rules: [rule] })], 'ALLOW', subject)).toMatchObject({
      decision: 'ALLOW',
      byDefault: true,
    });
  });
});

describe('a rule that cannot be evaluated', () => {
  it.each(FAILURES)('denies in a DENY policy: %s', (result) => {
    const verdict = decide([aVote('DENY', result)]);
    expect(verdict).toMatchObject({ decision: 'DENY', violations: [{ failed: true }] });
  });

  it.each(FAILURES)('denies in an ALLOW policy, also when another one allows: %s', (result) => {
    const other = aVote('ALLOW', 'true', { name: 'other' });
    expect(decide([aVote('ALLOW', result), other])).toMatchObject({ decision: 'DENY' });
  });

  it.each(FAILURES)('is reported in an AUDIT policy: %s', (result) => {
    const verdict = decide([aVote('AUDIT', result)]);
    expect(verdict).toMatchObject({ decision: 'ALLOW', audit: [{ failed: true }] });
  });

  it('denies when a condition throws', () => {
    const broken = {
      ...compilePolicy(aPolicy()),
      rules: [
        {
          name: 'rule',
          conditions: [
            () => {
              throw new Error('broken');
            },
          ],
          check: () => [],
        },
      ],
    };
    const verdict = evaluatePolicies(createPolicySet([broken], 'ALLOW'), aSubject());
    expect(verdict).toMatchObject({ decision: 'DENY', violations: [{ failed: true }] });
  });

  it('names the cause', () => {
    expect(decide([aVote('DENY', 'text')]).violations.map(formatViolation)).toEqual([
      'policy "p-deny", rule "rule": spec is a workload for which the rule fails: the result is true (string), not true or false; allowed is a workload for which the rule can be evaluated',
    ]);
  });
});

describe('a violation', () => {
  it('names policy, rule, field, the value found and what would be allowed', () => {
    const policy = aPolicy({
      name: 'registries',
      rules: [
        {
          name: 'ours',
          type: 'IMAGE_REGISTRY',
          config: { allowed: ['registry.example'] },
        },
      ],
    });
    expect(decide([policy]).violations).toEqual([
      {
        policy: 'registries',
        rule: 'ours',
        action: 'DENY',
        failed: false,
        field: 'spec.image',
        found: '"nginx:alpine"',
        allowed: 'an image from registry.example',
      },
    ]);
  });
});

it('refuses two policies with the same name', () => {
  const policy = compilePolicy(aPolicy());
  expect(() => createPolicySet([policy, policy], 'ALLOW')).toThrow(
    new InvalidInputError([{ field: 'name', message: 'two policies are named policy' }]),
  );
});

const arbVote = fc
  .record({
    action: fc.constantFrom<PolicyAction>('ALLOW', 'DENY', 'AUDIT'),
    result: fc.constantFrom('true', 'false', ...FAILURES),
    priority: fc.nat(3),
    enabled: fc.boolean(),
    namespace: fc.constantFrom('*', 'default', 'other'),
  })
  .map(({ action, result, ...changes }) => aVote(action, result, changes));
const arbPolicies = fc
  .array(arbVote, { maxLength: 6 })
  .map((votes) => votes.map((vote, index) => ({ ...vote, name: `p${index}` })));
const arbDefault = fc.constantFrom<Verdict['decision']>('ALLOW', 'DENY');

const selects = ({ enabled, namespace }: Policy) => enabled && namespace !== 'other';
const resultOf = ({ rules: [rule] }: Policy) =>
  rule?.type === 'EXPRESSION' ? rule.config.expression : '';

describe('for any policies', () => {
  it('the order has no effect', () => {
    const shuffled = arbPolicies.chain((policies) =>
      fc.tuple(
        fc.constant(policies),
        fc.shuffledSubarray(policies, { minLength: policies.length }),
      ),
    );
    fc.assert(
      fc.property(shuffled, arbDefault, ([policies, others], fallback) => {
        expect(decide(others, fallback)).toEqual(decide(policies, fallback));
      }),
    );
  });

  it('AUDIT policies never change the decision', () => {
    fc.assert(
      fc.property(arbPolicies, arbDefault, (policies, fallback) => {
        const without = decide(
          policies.filter(({ action }) => action !== 'AUDIT'),
          fallback,
        );
        expect({ ...decide(policies, fallback), audit: [] }).toEqual(without);
      }),
    );
  });

  it('only an ALLOW policy of higher priority that is satisfied overrides a DENY or a failure', () => {
    fc.assert(
      fc.property(arbPolicies, arbDefault, (policies, fallback) => {
        const deciding = policies.filter((p) => selects(p) && p.action !== 'AUDIT');
        const denials = deciding.filter((p) =>
          p.action === 'DENY' ? resultOf(p) !== 'true' : !['true', 'false'].includes(resultOf(p)),
        );
        fc.pre(denials.length > 0);
        const highest = Math.max(...denials.map(({ priority }) => priority));
        const isOverridden = deciding.some(
          (p) => p.action === 'ALLOW' && resultOf(p) === 'true' && p.priority > highest,
        );
        expect(decide(policies, fallback).decision).toBe(isOverridden ? 'ALLOW' : 'DENY');
      }),
    );
  });

  it('the default decides exactly when no ALLOW or DENY policy selects the workload', () => {
    fc.assert(
      fc.property(arbPolicies, arbDefault, (policies, fallback) => {
        const isSelected = policies.some((p) => selects(p) && p.action !== 'AUDIT');
        const verdict = decide(policies, fallback);
        expect(verdict.byDefault).toBe(!isSelected);
        if (!isSelected) expect(verdict.decision).toBe(fallback);
      }),
    );
  });

  it('a denial by policies has violations, and an allowed workload has none', () => {
    fc.assert(
      fc.property(arbPolicies, arbDefault, (policies, fallback) => {
        const { decision, byDefault, violations } = decide(policies, fallback);
        expect(violations.length > 0).toBe(decision === 'DENY' && !byDefault);
      }),
    );
  });
});
