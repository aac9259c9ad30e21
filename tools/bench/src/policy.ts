// Evaluations of policies in a second of CPU time: the default policies, with and without a
// violation, and with an expression in CEL.
import { create } from '@bufbuild/protobuf';
import { withDefaults, WorkloadSpecSchema } from '@cloudless/api';
import {
  compilePolicy,
  createPolicySet,
  DEFAULT_POLICIES,
  evaluatePolicies,
  type Policy,
  type PolicySubject,
} from '@cloudless/policy';
import { printReport } from './report.js';
import { Violations } from './violations.js';

const WARM_UP_EVALUATIONS = 20_000;

const violations = new Violations();

const expression: Policy = {
  name: 'expression',
  namespace: '*',
  enabled: true,
  priority: 0,
  action: 'DENY',
  rules: [
    {
      name: 'ports',
      type: 'EXPRESSION',
      config: { expression: 'spec.ports.all(p, p.container_port >= 1024) && spec.replicas < 100' },
    },
  ],
};

const base = {
  image: 'registry.example/team/web:1.2',
  ports: [{ containerPort: 8080 }, { containerPort: 9090 }],
  labels: { app: 'web' },
};
const plain: PolicySubject = {
  namespace: 'default',
  name: 'web',
  spec: withDefaults(
    create(WorkloadSpecSchema, {
      ...base,
      security: { capabilitiesDrop: ['ALL'], capabilitiesAdd: ['NET_BIND_SERVICE'] },
    }),
  ),
};
const privileged: PolicySubject = {
  ...plain,
  spec: withDefaults(
    create(WorkloadSpecSchema, {
      ...base,
      security: { privileged: true },
      network: { hostNetwork: true },
    }),
  ),
};

/** Measures one case, and checks the decision of each evaluation. */
function measure(
  name: string,
  policies: readonly Policy[],
  subject: PolicySubject,
  { expected, evaluations }: { readonly expected: string; readonly evaluations: number },
) {
  const set = createPolicySet(
    policies.map((policy) => compilePolicy(policy)),
    'ALLOW',
  );
  const run = (count: number) => {
    let wrong = 0;
    for (let index = 0; index < count; index += 1)
      if (evaluatePolicies(set, subject).decision !== expected) wrong += 1;
    return wrong;
  };
  run(Math.min(WARM_UP_EVALUATIONS, evaluations));
  const before = process.cpuUsage();
  const wrong = run(evaluations);
  const { user, system } = process.cpuUsage(before);
  const cpuSeconds = (user + system) / 1e6;
  violations.check(wrong === 0, `${name}: ${wrong} evaluations did not decide ${expected}`);
  return { name, evaluations, cpuSeconds, perCpuSecond: Math.round(evaluations / cpuSeconds) };
}

const MANY = { evaluations: 500_000 };
printReport('policy', {
  unit: 'evaluations per second of CPU time',
  goal: 'at least 50 000 of the default policies',
  cases: [
    measure('default policies', DEFAULT_POLICIES, plain, { expected: 'ALLOW', ...MANY }),
    measure('default policies, denied', DEFAULT_POLICIES, privileged, {
      expected: 'DENY',
      ...MANY,
    }),
    measure('default policies and an expression', [...DEFAULT_POLICIES, expression], plain, {
      expected: 'ALLOW',
      evaluations: 50_000,
    }),
  ],
  violations: violations.texts,
});
process.exit(violations.exitCode());
