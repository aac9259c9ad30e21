import { InvalidInputError } from '@cloudless/base';
import { compilePolicy } from './compile-policy.js';
import { EXPRESSION_LIMITS } from './expression/budget.js';
import { RULE_TYPES } from './rules/rule-types.js';
import { aPolicy } from './testing/builders.js';

/** Returns the problems of a policy, as `field: message`. */
function problemsOf(raw: unknown): readonly string[] {
  try {
    compilePolicy(raw);
    return [];
  } catch (error) {
    if (!(error instanceof InvalidInputError)) throw error;
    return error.violations.map(({ field, message }) => `${field}: ${message}`);
  }
}

const rule = (changes: object) => ({
  name: 'rule',
  type: 'PRIVILEGED_MODE',
  config: {},
  ...changes,
});
const withRule = (changes: object) => ({ ...aPolicy(), rules: [rule(changes)] });
const withConfig = (type: string, config: unknown) => withRule({ type, config });
const withCondition = (condition: unknown) => withRule({ conditions: [condition] });

describe('a policy', () => {
  it('without problems is accepted, whether it is enabled or not', () => {
    expect(problemsOf(aPolicy())).toEqual([]);
    expect(problemsOf(aPolicy({ enabled: false }))).toEqual([]);
  });

  it.each([
    ['no object', 'policy', [': a policy must be an object']],
    [
      'an unknown field',
      { ...aPolicy(), rule: 1 },
      ['rule: unknown field; allowed are name, namespace, enabled, priority, action, rules'],
    ],
    [
      'wrong values everywhere',
      { name: 'A', namespace: '', enabled: 1, priority: 1001, action: 'deny', rules: [] },
      [
        'name: "A" is not a name of 1 to 63 lower-case letters, digits and hyphens',
        'namespace: "" is not a name of 1 to 63 lower-case letters, digits and hyphens, or * for all namespaces',
        'enabled: 1 is not true or false',
        'priority: 1001 is not a whole number from 0 to 1000',
        'action: "deny" is not an action; use ALLOW, DENY, AUDIT',
        'rules: must be a list of 1 to 64 rules',
      ],
    ],
    [
      'too many rules',
      { ...aPolicy(), rules: Array(65).fill(rule({})) },
      ['rules: must be a list of 1 to 64 rules'],
    ],
    [
      'two rules with one name',
      { ...aPolicy(), rules: [rule({}), rule({})] },
      ['rules[1].name: "rule" is used twice'],
    ],
    [
      'an unknown field of a rule',
      withRule({ condition: [] }),
      ['rules[0].condition: unknown field; allowed are name, type, config, conditions'],
    ],
    [
      'a rule that is no object',
      { ...aPolicy(), rules: [null] },
      ['rules[0]: must have the fields name, type, config, conditions'],
    ],
  ])('with %s is refused', (_title, raw, problems) => {
    expect(problemsOf(raw)).toEqual(problems);
  });
});

describe('a type of rule', () => {
  it.each(['privileged_mode', 'toString', '', undefined, 5])('%s is unknown', (type) => {
    const [problem] = problemsOf(withRule({ type }));
    expect(problem).toMatch(/^rules\[0\]\.type: .* is not a type of rule; use IMAGE_REGISTRY, /);
    for (const known of RULE_TYPES) expect(problem).toContain(known);
  });

  it.each(RULE_TYPES)('%s has no unknown fields', (type) => {
    const problems = problemsOf(withConfig(type, { unknown: 1 }));
    expect(problems).toContainEqual(
      expect.stringMatching(
        /^rules\[0\]\.config\.unknown: unknown field; (no fields are allowed|allowed are )/,
      ),
    );
  });

  it.each(RULE_TYPES)('%s needs a configuration', (type) => {
    expect(problemsOf(withConfig(type, undefined))).toEqual([
      'rules[0].config: must be an object; {} when nothing is configured',
    ]);
  });
});

it.each([
  ['IMAGE_REGISTRY', {}, ': needs at least one of allowed, denied, require_digest'],
  [
    'IMAGE_REGISTRY',
    { allowed: ['r.example', 'https://r.example'] },
    '.allowed[1]: "https://r.example" is not allowed; use registries such as registry.example:5000, *.example.com or docker.io/library',
  ],
  [
    'IMAGE_REGISTRY',
    { allowed: [] },
    '.allowed: must be a list of 1 to 256 registries such as registry.example:5000, *.example.com or docker.io/library',
  ],
  ['IMAGE_REGISTRY', { requireDigest: 'yes' }, '.require_digest: "yes" is not true or false'],
  ['CAPABILITIES', {}, ': needs at least one of allowed_add, denied_add, required_drop'],
  [
    'CAPABILITIES',
    { deniedAdd: ['ROOT'] },
    '.denied_add[0]: "ROOT" is not allowed; use Linux capabilities such as NET_ADMIN, or ALL',
  ],
  ['EGRESS_DESTINATION', {}, '.allowed: is required'],
  [
    'EGRESS_DESTINATION',
    { allowed: '10.0.0.0/8' },
    '.allowed: must be a list of at most 64 destinations',
  ],
  ['EGRESS_DESTINATION', { allowed: ['*'] }, '.allowed[0]: "*" is not an object'],
  [
    'EGRESS_DESTINATION',
    { allowed: [{ service: '*' }, { service: '*', cidr: '::/0' }] },
    '.allowed[1]: needs exactly one of cidr, service',
  ],
  [
    'EGRESS_DESTINATION',
    { allowed: [{ cidr: '10.0.0.1/8' }] },
    '.allowed[0].cidr: 10.0.0.1/8 has host bits: use 10.0.0.0/8',
  ],
  [
    'EGRESS_DESTINATION',
    { allowed: [{ service: 'db.shop' }] },
    '.allowed[0].service: "db.shop" is a host name; write shop/db',
  ],
  [
    'EGRESS_DESTINATION',
    { allowed: [{ service: '*', ports: [] }] },
    '.allowed[0].ports: must be a list of 1 to 16 ports',
  ],
  [
    'EGRESS_DESTINATION',
    { allowed: [{ service: '*', ports: [{ port: 80, endPort: 79 }] }] },
    '.allowed[0].ports[0].end_port: 79 is not a whole number from 80 to 65535',
  ],
  [
    'EGRESS_DESTINATION',
    { allowed: [{ service: '*', ports: [{ port: 80, protocol: 'tcp' }] }] },
    '.allowed[0].ports[0].protocol: "tcp" is not allowed; use TCP, UDP',
  ],
  [
    'EGRESS_DESTINATION',
    { allowed: [{ service: '*', ports: [{ port: 80, name: 'web' }] }] },
    '.allowed[0].ports[0].name: unknown field; allowed are port, protocol, end_port',
  ],
  ['RESOURCE_LIMIT', { maxPids: 0 }, '.max_pids: 0 is not a whole number from 1 to 2^53 - 1'],
  [
    'NODE_SELECTOR',
    { required: { tier: 'web' } },
    '.required: must map 1 to 256 labels to lists of at most 256 values',
  ],
  ['VOLUME_TYPE', {}, '.allowed: is required'],
  [
    'VOLUME_TYPE',
    { allowed: ['NFS'] },
    '.allowed[0]: "NFS" is not allowed; use EMPTY_DIR, HOST_PATH, NAMED',
  ],
  [
    'VOLUME_TYPE',
    { allowed: ['HOST_PATH'], hostPaths: ['/srv/../etc'] },
    '.host_paths[0]: "/srv/../etc" is not allowed; use absolute paths without ., .. and slashes at the end',
  ],
  [
    'VOLUME_TYPE',
    { allowed: ['NAMED'], hostPaths: ['/srv'] },
    ': host_paths and read_only_host_paths need HOST_PATH in allowed',
  ],
  [
    'SECURITY_CONTEXT',
    { userIds: { min: 5, max: 1 } },
    '.user_ids: must be { min, max } with 0 <= min <= max <= 4294967294',
  ],
  [
    'SECCOMP_PROFILE',
    { allowed: ['runtime/default'] },
    '.allowed[0]: "runtime/default" is not allowed; use RuntimeDefault, Unconfined or localhost/<path>',
  ],
  ['EXPRESSION', { expression: ' ' }, '.expression: must be a text that is not empty'],
  [
    'EXPRESSION',
    { expression: `name == "${'é'.repeat(EXPRESSION_LIMITS.sourceBytes / 2)}"` },
    '.expression: has 4106 bytes; at most 4096 are allowed',
  ],
  [
    'EXPRESSION',
    { expression: 'spec.imag == ""' },
    expect.stringMatching(
      /^rules\[0\]\.config\.expression: WorkloadSpec has no field imag; it has image, /,
    ),
  ],
])('the configuration of %s is refused: %j', (type, config, problem) => {
  const expected = typeof problem === 'string' ? `rules[0].config${problem}` : problem;
  expect(problemsOf(withConfig(type, config))).toEqual([expected]);
});

it.each([
  ['a text', 'x', ': must have the fields field, operator and value'],
  [
    'an unknown field of the condition',
    { field: 'name', operator: 'EXISTS', values: [] },
    '.values: unknown field; allowed are field, operator, value',
  ],
  [
    'no path',
    { field: 'status.phase', operator: 'EXISTS' },
    '.field: "status.phase" is not a field; use namespace, name, or a path such as spec.image or spec.labels["app"]',
  ],
  [
    'an unknown field of the spec',
    { field: 'spec.security.root', operator: 'EXISTS' },
    expect.stringContaining('.field: spec.security has no field root; it has run_as_non_root, '),
  ],
  [
    'a field below a single value',
    { field: 'spec.image.tag', operator: 'EXISTS' },
    '.field: spec.image has no fields; use a rule of type EXPRESSION',
  ],
  [
    'a list of messages',
    { field: 'spec.ports', operator: 'EXISTS' },
    '.field: ports cannot be compared; use a rule of type EXPRESSION for this field',
  ],
  [
    'a whole map',
    { field: 'spec.labels', operator: 'EXISTS' },
    '.field: labels cannot be compared; name an entry: labels["key"]',
  ],
  [
    'an unknown operator',
    { field: 'name', operator: '==', value: 'web' },
    '.operator: "==" is not an operator; use EQUALS, NOT_EQUALS, IN, NOT_IN, EXISTS, NOT_EXISTS, GREATER_THAN, LESS_THAN, STARTS_WITH, ENDS_WITH, CONTAINS',
  ],
  [
    'an order of texts',
    { field: 'name', operator: 'LESS_THAN', value: 'web' },
    '.operator: LESS_THAN compares numbers, and the field is a text',
  ],
  [
    'a whole list',
    { field: 'spec.args', operator: 'EQUALS', value: 'web' },
    '.operator: the field is a list; use CONTAINS, EXISTS or NOT_EXISTS',
  ],
  [
    'a value of another type',
    { field: 'spec.priority', operator: 'EQUALS', value: '5' },
    '.value: "5" is not a whole number',
  ],
  [
    'an unknown enum value',
    { field: 'spec.mode', operator: 'EQUALS', value: 'EVERYWHERE' },
    '.value: "EVERYWHERE" is not a value of the field; use REPLICATED, GLOBAL',
  ],
  [
    'a single value for IN',
    { field: 'name', operator: 'IN', value: 'web' },
    '.value: IN needs a list of 1 to 256 values',
  ],
  [
    'a value for EXISTS',
    { field: 'name', operator: 'EXISTS', value: 'web' },
    '.value: EXISTS has no value; leave value out',
  ],
])('a condition is refused: %s', (_title, condition, problem) => {
  const path = 'rules[0].conditions[0]';
  const expected = typeof problem === 'string' ? `${path}${problem}` : problem;
  expect(problemsOf(withCondition(condition))).toEqual([expected]);
});

it('every problem of a policy is reported at once', () => {
  const rules = [rule({ type: 'X' }), rule({ name: 'b', config: { a: 1 } })];
  expect(
    problemsOf({ ...aPolicy({ priority: -1 }), rules }).map((text) => text.split(':')[0]),
  ).toEqual(['priority', 'rules[0].type', 'rules[1].config.a']);
});
