import { RestartPolicy_Policy, WorkloadSpec_Mode } from '@cloudless/api';
import type { PolicyCondition } from '../model.js';
import { aSubject } from '../testing/builders.js';
import { compileCondition } from './compile-condition.js';

const SUBJECT = aSubject({
  image: 'ghcr.io/team/web:1',
  args: ['--verbose', ''],
  labels: { app: 'web', empty: '' },
  replicas: 3,
  mode: WorkloadSpec_Mode.GLOBAL,
  restart: { policy: RestartPolicy_Policy.NEVER },
  resources: { limits: { memoryBytes: 1_000n } },
  livenessProbe: { check: { case: 'http', value: { path: '/health' } } },
});

function isMet(condition: PolicyCondition): boolean {
  const problems: unknown[] = [];
  const check = compileCondition(condition, 'condition', (problem) => problems.push(problem));
  expect(problems).toEqual([]);
  return check(SUBJECT);
}

it.each<readonly [PolicyCondition['field'], PolicyCondition['operator'], unknown, boolean]>([
  ['namespace', 'EQUALS', 'default', true],
  ['name', 'NOT_EQUALS', 'web', false],
  ['name', 'IN', ['api', 'web'], true],
  ['name', 'NOT_IN', ['api'], true],
  ['spec.image', 'STARTS_WITH', 'ghcr.io/', true],
  ['spec.image', 'STARTS_WITH', 'quay.io/', false],
  ['spec.image', 'ENDS_WITH', ':1', true],
  ['spec.image', 'CONTAINS', '/team/', true],
  ['spec.image', 'EXISTS', undefined, true],
  ['spec.working_dir', 'EXISTS', undefined, false],
  ['spec.working_dir', 'EQUALS', '', true],
  ['spec.args', 'CONTAINS', '--verbose', true],
  ['spec.args', 'CONTAINS', '--verb', false],
  ['spec.args', 'EXISTS', undefined, true],
  ['spec.command', 'NOT_EXISTS', undefined, true],
  ['spec.labels["app"]', 'EQUALS', 'web', true],
  ['spec.labels["empty"]', 'EXISTS', undefined, true],
  ['spec.labels["none"]', 'EQUALS', '', false],
  ['spec.labels["none"]', 'NOT_EQUALS', 'web', true],
  ['spec.labels["toString"]', 'EXISTS', undefined, false],
  ['spec.replicas', 'GREATER_THAN', 2, true],
  ['spec.replicas', 'GREATER_THAN', 3, false],
  ['spec.replicas', 'LESS_THAN', 4, true],
  ['spec.mode', 'EQUALS', 'GLOBAL', true],
  ['spec.restart.policy', 'IN', ['ALWAYS', 'NEVER'], true],
  ['spec.resources.limits.memory_bytes', 'EQUALS', 1000, true],
  ['spec.resources.limits.cpu_millis', 'EXISTS', undefined, false],
  ['spec.resources.limits.cpu_millis', 'LESS_THAN', 1, false],
  ['spec.resources.limits.cpu_millis', 'NOT_EQUALS', 1, true],
  ['spec.security.privileged', 'EQUALS', false, true],
  ['spec.security.privileged', 'NOT_EXISTS', undefined, true],
  ['spec.security.run_as_user', 'NOT_EXISTS', undefined, true],
  ['spec.security.capabilities_add', 'CONTAINS', 'ALL', false],
  ['spec.liveness_probe.http.path', 'EQUALS', '/health', true],
  ['spec.readiness_probe.http.path', 'EQUALS', '', true],
])('%s %s %j is %s', (field, operator, value, expected) => {
  const condition = { field, operator, ...(value === undefined ? {} : { value }) };
  expect(isMet(condition as PolicyCondition)).toBe(expected);
});
