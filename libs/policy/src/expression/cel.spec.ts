import fc from 'fast-check';
import type { PolicySubject } from '../model.js';
import { aSubject } from '../testing/builders.js';
import { Budget, BudgetSpentError, EXPRESSION_LIMITS } from './budget.js';
import { celEngine } from './cel.js';

const SUBJECT = aSubject({
  image: 'ghcr.io/team/web:1',
  args: ['a', 'b'],
  env: { LEVEL: 'debug' },
  labels: { app: 'web' },
  replicas: 3,
  ports: [{ containerPort: 80 }, { containerPort: 443 }],
  resources: { limits: { memoryBytes: 1_000n } },
});

function evaluate(
  source: string,
  subject: PolicySubject = SUBJECT,
  budget = new Budget(),
): unknown {
  return celEngine.compile(source)(subject, budget);
}

/** A spec with as many arguments and variables as the API accepts. */
const LARGE = aSubject({
  args: Array.from({ length: 1_024 }, () => 'a'.repeat(100)),
  env: Object.fromEntries(Array.from({ length: 1_024 }, (_, index) => [`K${index}`, 'value'])),
});

it.each([
  ['workload_namespace == "default" && workload_name == "web"', true],
  ['spec.image.startsWith("ghcr.io/")', true],
  ['spec.image.endsWith(":latest")', false],
  ['spec.image.matches("^ghcr[.]io/[a-z/]+:[0-9]+$")', true],
  ['spec.image.contains("/team/")', true],
  ['spec.replicas >= 2 && spec.replicas <= 5', true],
  ['spec.replicas > 2.5', true],
  ['spec.security.privileged', false],
  ['has(spec.security)', false],
  ['has(spec.resources.limits.memory_bytes)', true],
  ['has(spec.resources.limits.cpu_millis)', false],
  ['spec.labels["app"] in ["web", "api"]', true],
  ['spec.labels.app == "web"', true],
  ['"app" in spec.labels && !("tier" in spec.labels)', true],
  ['spec.ports.all(p, p.container_port < 1024)', true],
  ['spec.ports.exists(p, p.container_port == 8080)', false],
  ['spec.ports.exists_one(p, p.container_port == 443)', true],
  ['spec.ports.map(p, p.container_port).filter(n, n > 100).size() == 1', true],
  ['spec.args.all(a, spec.env.all(key, key != a))', true],
  ['size(spec.args) + size(spec.env) == 3', true],
  ['spec.mode == 0 ? spec.replicas == 3 : true', true],
  ['spec.termination_grace_period <= duration("60s")', true],
  ['string(spec.replicas) + "x" == "3x"', true],
  ['int("5") + 1 == 6', true],
  ['{"a": 1}["a"] == 1', true],
])('%s is %s', (source, expected) => {
  expect(evaluate(source)).toBe(expected);
});

describe('an expression is refused', () => {
  it.each([
    ['a syntax error', 'spec.image ==', /expecting/],
    [
      'an unknown variable',
      'workload.image == ""',
      'workload is not a variable; use spec, workload_namespace, workload_name',
    ],
    [
      'an unknown field',
      'spec.security.root',
      /^SecurityContext has no field root; it has run_as_non_root, /,
    ],
    ['an unknown field in has', 'has(spec.root)', /^WorkloadSpec has no field root/],
    ['an unknown field in a loop', 'spec.ports.all(p, p.number > 0)', /^Port has no field number/],
    ['a field of a single value', 'spec.image.tag == ""', '.tag: a single value has no fields'],
    [
      'an unknown function',
      'reverse(workload_name) == ""',
      /^reverse is not an allowed function or form; allowed are has, all, /,
    ],
    ['an unknown method', 'workload_name.reverse() == ""', /^reverse is not an allowed function/],
    [
      'a function of CEL that is not needed',
      'timestamp("x") == timestamp("x")',
      /^timestamp is not an allowed function/,
    ],
    [
      'a new message',
      'cloudless.api.WorkloadSpec{image: "x"}.image == ""',
      'cloudless.api.WorkloadSpec{…}: messages cannot be created',
    ],
    ['bytes', 'b"a" == b"a"', 'bytes are not allowed; use texts'],
    ['null', 'spec.security == null', 'null is not allowed; use has(…) for absent fields'],
    [
      'a comparison of messages',
      'spec == spec',
      'a message cannot be compared; compare its fields, items or size',
    ],
    [
      'a comparison of lists',
      'spec.args == ["a"]',
      'a list cannot be compared; compare its fields, items or size',
    ],
    ['a loop over a text', 'workload_name.all(c, true)', 'a loop needs a list or a map'],
    [
      'three loops',
      'spec.args.all(a, spec.args.all(b, spec.args.all(c, true)))',
      'loops are nested more than 2 deep',
    ],
    [
      'deep brackets',
      `${'('.repeat(1_000)}true${')'.repeat(1_000)}`,
      'brackets are nested more than 32 deep',
    ],
    [
      'deep lists',
      `${'['.repeat(1_000)}${']'.repeat(1_000)} == []`,
      'brackets are nested more than 32 deep',
    ],
    ['a deep tree', `1${' + 1'.repeat(200)} > 0`, 'the expression is more than 100 levels deep'],
    ['deep indexes', `spec.args${'[0]'.repeat(200)} == ""`, /levels deep|needs a list or a map/],
    ['a deep conditional', `${'true ? true : '.repeat(150)}true`, /levels deep|expecting/],
    [
      'a long source',
      `true || ${'a'.repeat(EXPRESSION_LIMITS.sourceBytes)}`,
      'has 4104 bytes; at most 4096 are allowed',
    ],
    [
      'a pattern that is not constant',
      'workload_name.matches(spec.image)',
      'matches needs a text in quotes',
    ],
    ['a pattern that is not valid', 'workload_name.matches("(")', /missing closing/],
    [
      'a long pattern',
      `workload_name.matches("${'a'.repeat(257)}")`,
      'the regular expression has 257 characters; at most 256 are allowed',
    ],
    [
      'a pattern with large counts',
      'workload_name.matches("((a{20}){20}){20}")',
      'the repetition counts of the regular expression multiply to 8000; at most 1000 is allowed',
    ],
  ])('for %s', (_title, source, message) => {
    expect(() => celEngine.compile(source)).toThrow(message);
  });
});

describe('brackets in texts do not count as nesting', () => {
  const many = '('.repeat(100);
  it.each([
    `"${many}" != workload_name`,
    `'${many}' != workload_name`,
    `"""${many}"""!= workload_name`,
    `r"${many}\\" != workload_name`,
    `"\\"${many}" != workload_name`,
  ])('%s', (source) => {
    expect(evaluate(source)).toBe(true);
  });
});

describe('the budget', () => {
  it.each([
    ['two loops over long lists', 'spec.args.all(a, spec.args.all(b, a == b))'],
    ['two loops over maps', 'spec.env.all(a, spec.env.all(b, a != "" && b != ""))'],
    [
      'a loop that builds a long list again and again',
      'spec.args.all(a, size(spec.args.map(b, b)) > 0)',
    ],
    [
      'a regular expression in two loops',
      'spec.args.all(a, spec.args.all(b, b.matches("(a+a+)+$")))',
    ],
    ['a search in two loops', 'spec.args.all(a, spec.args.all(b, (a + b).contains(b)))'],
    ['an error that the expression hides', 'spec.args.all(a, spec.args.all(b, a == b)) || true'],
    [
      'an error behind a condition',
      'spec.args.exists(a, spec.args.all(b, a == b) ? false : true) || workload_name == "web"',
    ],
  ])('is spent by %s', (_title, source) => {
    const budget = new Budget();
    expect(() => evaluate(source, LARGE, budget)).toThrow(BudgetSpentError);
    expect(budget.isSpent).toBe(true);
  });

  it('is enough for one loop over the longest list', () => {
    expect(evaluate('spec.args.all(a, a.startsWith("a") && !a.contains("b"))', LARGE)).toBe(true);
    expect(evaluate('spec.env.all(key, spec.env[key] == "value")', LARGE)).toBe(true);
  });

  it('is full again for the next evaluation', () => {
    const check = celEngine.compile('spec.args.all(a, spec.args.all(b, a == b))');
    expect(() => check(LARGE, new Budget())).toThrow(BudgetSpentError);
    expect(check(aSubject({ args: ['a', 'a'] }), new Budget())).toBe(true);
  });

  it('ignores an error that the expression hides while the budget is not spent', () => {
    expect(evaluate('spec.args[7] == "" || true')).toBe(true);
  });
});

describe('an evaluation fails', () => {
  it.each([
    ['for an index that is not there', 'spec.args[2000] == "a"'],
    ['for a key that is not there', 'spec.labels["tier"] == "web"'],
    ['for a division by zero', 'spec.replicas / 0 == 1'],
    ['for values of different kinds', 'spec.replicas > "a"'],
    ['for a number that is too large', '9223372036854775807 + spec.replicas > 0'],
    [
      'for a comparison of lists that only the evaluation shows',
      '(true ? spec.args : spec.args) == spec.args[0]',
    ],
    ['for a list that is too long', 'size(spec.args + ["a"]) > 0'],
    ['for a text that is too long to be parsed', `int(spec.args[0]) == 1`],
  ])('%s', (_title, source) => {
    expect(() => evaluate(source, source.includes('args') ? LARGE : SUBJECT)).toThrow();
  });

  it.each(['"a"', '1', 'spec.args', 'spec', '{}'])(
    'not when the result is of another type: %s',
    (source) => {
      expect(typeof evaluate(source)).not.toBe('boolean');
    },
  );
});

it('any source is either refused or evaluated within the budget', () => {
  const part = fc.constantFrom(
    ...[
      'spec.args',
      'spec.env',
      'workload_name',
      '"a"',
      '1',
      'true',
      '(',
      ')',
      '[',
      ']',
      '{',
      '}',
      '.all(a, ',
      '.map(a, ',
    ],
    ...[
      '.filter(b, ',
      ' + ',
      ' == ',
      ' && ',
      ' || ',
      '!',
      '-',
      ' in ',
      '.size()',
      'size(',
      '?',
      ':',
      'a',
      'b',
      ', ',
    ],
    ...[
      '.matches("a*")',
      '.contains(',
      'has(spec.security)',
      'spec.ports[0]',
      'int(',
      '"""',
      "'",
      '//',
      '\n',
    ],
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
      let check;
      try {
        check = celEngine.compile(parts.join(''));
      } catch (error) {
        expect(error).toBeInstanceOf(Error);
        return;
      }
      const budget = new Budget();
      try {
        check(LARGE, budget);
        expect(budget.isSpent).toBe(false);
      } catch (error) {
        expect(error).toBeInstanceOf(Error);
      }
    }),
    { numRuns: 50 },
  );
});
