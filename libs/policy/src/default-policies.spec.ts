import { normalizeCapability } from '@cloudless/api';
import { compilePolicy } from './compile-policy.js';
import { DANGEROUS_CAPABILITIES, DEFAULT_POLICIES } from './default-policies.js';
import type { Policy } from './model.js';
import { createPolicySet, evaluatePolicies } from './policy-set.js';
import { aPolicy, aProcess, aRule, aSubject } from './testing/builders.js';

const decide = (subject: ReturnType<typeof aSubject>, more: readonly Policy[] = []) => {
  const policies = [...DEFAULT_POLICIES, ...more].map((policy) => compilePolicy(policy));
  return evaluatePolicies(createPolicySet(policies, 'ALLOW'), subject);
};

it.each([
  ['a plain container', aSubject(), undefined],
  ['a process', aProcess(), undefined],
  ['a privileged container', aSubject({ security: { privileged: true } }), 'default-privileged'],
  [
    'the network of the node',
    aSubject({ network: { hostNetwork: true } }),
    'default-host-namespaces',
  ],
  [
    'a dangerous capability',
    aSubject({ security: { capabilitiesAdd: ['CAP_SYS_ADMIN'] } }),
    'default-capabilities',
  ],
  ['a harmless capability', aSubject({ security: { capabilitiesAdd: ['CHOWN'] } }), undefined],
])('the default policies judge %s', (_title, subject, deniedBy) => {
  const { decision, violations } = decide(subject);
  expect(decision).toBe(deniedBy === undefined ? 'ALLOW' : 'DENY');
  if (deniedBy !== undefined)
    expect(violations).toContainEqual(expect.objectContaining({ policy: deniedBy }));
});

it('an ALLOW policy with a higher priority exempts a workload', () => {
  const exemption = aPolicy({
    name: 'exempt',
    action: 'ALLOW',
    priority: 1,
    rules: [
      aRule({
        type: 'EXPRESSION',
        config: { expression: 'true' },
        conditions: [{ field: 'name', operator: 'EQUALS', value: 'web' }],
      }),
    ],
  });
  const spec = { network: { hostNetwork: true } };
  expect(decide(aSubject(spec), [exemption]).decision).toBe('ALLOW');
  expect(decide(aSubject(spec, { name: 'other' }), [exemption]).decision).toBe('DENY');
});

it('dangerous capabilities are names of Linux capabilities', () => {
  expect(DANGEROUS_CAPABILITIES.map(normalizeCapability)).toEqual(DANGEROUS_CAPABILITIES);
});
