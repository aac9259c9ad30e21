// Evaluations of policies in a second of CPU time: the default policies, with and without a
// violation, and with an expression in CEL. Then the time that one admission adds to a call.
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

/** Longest time that the default policies may add to 95 % of the calls, milliseconds. */
const MAX_ADDED_P95_MS = 2;
const ADMISSIONS = 20_000;

/**
 * Measures what admission adds to a call: the defaults of the spec, and one evaluation. By the wall
 * clock, so other load on the machine counts.
 * @param maxP95Ms - Bound, milliseconds. Default: none, the time is only reported.
 */
function measureAdmission(name: string, policies: readonly Policy[], maxP95Ms = Infinity) {
  const set = createPolicySet(
    policies.map((policy) => compilePolicy(policy)),
    'ALLOW',
  );
  const times: number[] = [];
  for (let index = 0; index < ADMISSIONS; index += 1) {
    const beginMs = performance.now();
    evaluatePolicies(set, { ...plain, spec: withDefaults(plain.spec) });
    times.push(performance.now() - beginMs);
  }
  times.sort((left, right) => left - right);
  const p95Ms = times[Math.floor(times.length * 0.95)] ?? Infinity;
  violations.check(p95Ms < maxP95Ms, `${name}: admission adds ${p95Ms} ms P95`);
  return { name, admissions: ADMISSIONS, p95Ms: Math.round(p95Ms * 1_000) / 1_000 };
}

/** The default policies, and as many expressions as a cluster may have. */
const full: readonly Policy[] = [
  ...DEFAULT_POLICIES,
  ...Array.from({ length: 64 }, (_, index) => ({ ...expression, name: `expression-${index}` })),
];

const MANY = { evaluations: 500_000 };
printReport('policy', {
  unit: 'evaluations per second of CPU time',
  goal: 'at least 50 000 of the default policies; they add less than 2 ms P95 to a call',
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
    measureAdmission('admission by the default policies', DEFAULT_POLICIES, MAX_ADDED_P95_MS),
    measureAdmission('admission by the default policies and 64 expressions', full),
  ],
  violations: violations.texts,
});
process.exit(violations.exitCode());
