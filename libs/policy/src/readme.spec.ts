import { readFileSync } from 'node:fs';
import { create } from '@bufbuild/protobuf';
import { withDefaults, WorkloadSpecSchema } from '@cloudless/api';
import {
  compilePolicy,
  createPolicySet,
  DEFAULT_POLICIES,
  evaluatePolicies,
  formatViolation,
} from './index.js';

it('the example of the README holds', () => {
  // README begin
  const registries = compilePolicy({
    name: 'registries',
    namespace: '*',
    enabled: true,
    priority: 10,
    action: 'DENY',
    rules: [
      { name: 'ours', type: 'IMAGE_REGISTRY', config: { allowed: ['registry.example'] } },
      {
        name: 'production-has-limits',
        type: 'EXPRESSION',
        config: { expression: 'has(spec.resources.limits.memory_bytes)' },
        conditions: [{ field: 'namespace', operator: 'EQUALS', value: 'production' }],
      },
    ],
  });
  const defaults = DEFAULT_POLICIES.map((policy) => compilePolicy(policy));
  const policies = createPolicySet([registries, ...defaults], 'ALLOW');

  const spec = withDefaults(create(WorkloadSpecSchema, { image: 'nginx:alpine' }));
  const verdict = evaluatePolicies(policies, { namespace: 'default', name: 'web', spec });
  expect(verdict.decision).toBe('DENY');
  expect(verdict.violations.map(formatViolation)).toEqual([
    'policy "registries", rule "ours": spec.image is "nginx:alpine"; allowed is an image from registry.example',
  ]);
  // README end
});

it('the README shows the example word for word', () => {
  const lines = (text: string) => text.split('\n').map((line) => line.trim());
  const source = readFileSync(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const [, code = ''] = source.split('// README begin\n');
  const [example = ''] = code.split('  // README end');
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  expect(lines(readme).join('\n')).toContain(lines(example).join('\n').trim());
});
