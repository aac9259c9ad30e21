import { readFile } from 'node:fs/promises';
import { toJson } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadSpec } from '@cloudless/api';
import { arbitrarySpec } from '../testing/arbitraries.js';
import { parseManifest } from './parse-manifest.js';
import { printYaml } from './print-yaml.js';
import { formatProblem } from './yaml-reader.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const parse = (text: string): ReturnType<typeof parseManifest> =>
  parseManifest('web.yaml', bytes(text), 'default');
/** Returns the problems of a manifest as lines for the user. */
const problems = (text: string): readonly string[] => parse(text).problems.map(formatProblem);
/** Returns the parsed spec of a workload in protobuf JSON. */
const specJson = (spec: string): unknown => {
  const { workloads, problems: found } = parse(`name: web\nspec: ${spec}\n`);
  expect(found).toEqual([]);
  return toJson(WorkloadSpecSchema, workloads[0]?.spec as WorkloadSpec);
};
/** Returns the first problem of a workload with this spec. */
const specProblem = (spec: string): string | undefined => problems(`name: web\nspec: ${spec}\n`)[0];

describe('parseManifest', () => {
  it('reads back every spec from its YAML output', () => {
    fc.assert(
      fc.property(arbitrarySpec, (spec) => {
        const text = printYaml({
          kind: 'Workload',
          name: 'web',
          spec: toJson(WorkloadSpecSchema, spec),
        });
        const { workloads, problems: found } = parse(text);
        expect(found).toEqual([]);
        expect(workloads).toEqual([{ namespace: 'default', name: 'web', spec }]);
      }),
      { numRuns: 150 },
    );
  });

  it('reads JSON with snake_case keys', () => {
    fc.assert(
      fc.property(arbitrarySpec, (spec) => {
        const json = toJson(WorkloadSpecSchema, spec, { useProtoFieldName: true });
        expect(parse(JSON.stringify({ name: 'web', spec: json }, undefined, '\t'))).toEqual({
          workloads: [{ namespace: 'default', name: 'web', spec }],
          services: [],
          routes: [],
          configs: [],
          problems: [],
        });
      }),
      { numRuns: 100 },
    );
  });

  it('returns workloads or problems, and does not throw, for any text', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ unit: 'binary' }),
          fc.string({ unit: fc.constantFrom(...'[]{}:-,&*!|>"\' \nab1#~') }),
        ),
        (text) => {
          const { workloads, problems: found } = parse(text);
          expect(workloads.length + found.length).toBeGreaterThan(0);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('reads the example in the README', async () => {
    const readme = await readFile(new URL('../../README.md', import.meta.url), 'utf8');
    const example = /```yaml\n(kind: Workload[^]*?)```/.exec(readme)?.[1] ?? '';
    const { workloads, problems: found } = parse(example);
    expect(found).toEqual([]);
    expect(workloads).toMatchObject([
      {
        name: 'web',
        spec: {
          replicas: 3,
          resources: { requests: { cpuMillis: 250, memoryBytes: 67108864n } },
          rollout: { maxSurge: 1 },
        },
      },
    ]);
  });

  it('reads several documents, skips empty documents, and fills in the default namespace', () => {
    const { workloads, problems: found } = parse(
      '---\n---\nname: a\nspec: {}\n---\nnamespace: prod\nname: a\nspec: {}\n...\n',
    );
    expect(found).toEqual([]);
    expect(workloads.map(({ namespace, name }) => `${namespace}/${name}`)).toEqual([
      'default/a',
      'prod/a',
    ]);
  });

  it('reads a list of workloads', () => {
    expect(
      parse('[{"name":"a","spec":{}},{"name":"b","spec":{}}]').workloads.map(({ name }) => name),
    ).toEqual(['a', 'b']);
  });

  it('replaces an alias by the value of its anchor', () => {
    expect(
      parse('name: a\nspec:\n  env: &e {A: "1"}\n  labels: *e\n').workloads[0]?.spec.labels,
    ).toEqual({ A: '1' });
  });

  it('inserts the entries of merge keys, which the entries beside them replace', () => {
    const { workloads, problems: found } = parse(
      `x-base: &base { replicas: 2, env: { A: a } }
x-limits: &limits { replicas: 9, resources: { limits: { pids: 5 } } }
name: web
spec:
  <<: [*base, *limits]
  image: nginx
  env: { <<: { A: other, B: b }, B: c }
`,
    );
    expect(found).toEqual([]);
    expect(workloads[0]?.spec).toMatchObject({
      image: 'nginx',
      replicas: 2,
      env: { A: 'other', B: 'c' },
      resources: { limits: { pids: 5 } },
    });
  });

  it('bounds merge keys that refer to themselves', () => {
    expect(problems('name: web\nspec: &a\n  <<: *a\n').at(-1)).toMatch(/nested merge keys|aliases/);
  });

  it('refuses a .json file that is YAML but not JSON', () => {
    const { problems: found } = parseManifest('a.json', bytes('{"name":"a",\n"spec":{},}'), 'prod');
    expect(found.map(formatProblem)).toEqual([expect.stringMatching(/^a\.json:2:\d+: not JSON: /)]);
  });

  it.each(
    [
      { spec: '{terminationGracePeriod: 500ms}', json: { terminationGracePeriod: '0.500s' } },
      { spec: '{termination_grace_period: 2s}', json: { terminationGracePeriod: '2s' } },
      { spec: '{terminationGracePeriod: 1h30m}', json: { terminationGracePeriod: '5400s' } },
      {
        spec: '{resources: {requests: {memoryBytes: 64Mi}}}',
        json: { resources: { requests: { memoryBytes: '67108864' } } },
      },
      {
        spec: '{resources: {requests: {memory_bytes: 500M}}}',
        json: { resources: { requests: { memoryBytes: '500000000' } } },
      },
      {
        spec: '{resources: {requests: {memoryBytes: 1024}}}',
        json: { resources: { requests: { memoryBytes: '1024' } } },
      },
      {
        spec: '{resources: {requests: {cpuMillis: 500m}}}',
        json: { resources: { requests: { cpuMillis: 500 } } },
      },
      {
        spec: '{resources: {requests: {cpuMillis: "0.5"}}}',
        json: { resources: { requests: { cpuMillis: 500 } } },
      },
      {
        spec: '{resources: {requests: {cpuMillis: 0.25}}}',
        json: { resources: { requests: { cpuMillis: 250 } } },
      },
      {
        spec: '{resources: {requests: {cpuMillis: 2.0}}}',
        json: { resources: { requests: { cpuMillis: 2000 } } },
      },
      {
        spec: '{resources: {requests: {cpuMillis: 2}}}',
        json: { resources: { requests: { cpuMillis: 2 } } },
      },
      { spec: '{replicas: 0}', json: { replicas: 0 } },
      {
        spec: '{mode: GLOBAL, restart: {policy: NEVER}}',
        json: { mode: 'GLOBAL', restart: { policy: 'NEVER' } },
      },
      {
        spec: '{network: {egress: {allowed: [{cidr: 10.0.0.0/8, ports: [{port: 5432}]}, {service: shop/*}]}}}',
        json: {
          network: {
            egress: {
              allowed: [{ cidr: '10.0.0.0/8', ports: [{ port: 5432 }] }, { service: 'shop/*' }],
            },
          },
        },
      },
      { spec: '{network: {egress: {}}}', json: { network: { egress: {} } } },
      {
        spec: '{readinessProbe: {http: {path: /, port: http}, period: 1s}}',
        json: { readinessProbe: { http: { path: '/', port: 'http' }, period: '1s' } },
      },
    ].map((row) => ({ ...row, jsonText: JSON.stringify(row.json) })),
  )('reads the spec $spec as $jsonText', ({ spec, json }) => {
    expect(specJson(spec)).toEqual(json);
  });

  it.each([
    {
      spec: '{replica: 2}',
      problem: 'web.yaml:2:8: spec.replica: unknown key; did you mean replicas?',
    },
    {
      spec: '{rollout: {max_surg: 1}}',
      problem: 'web.yaml:2:18: spec.rollout.max_surg: unknown key; did you mean max_surge?',
    },
    {
      spec: '{rollout: {maxSurg: 1}}',
      problem: 'web.yaml:2:18: spec.rollout.maxSurg: unknown key; did you mean maxSurge?',
    },
    {
      spec: '{zzzzzz: 2}',
      problem: 'web.yaml:2:8: spec.zzzzzz: unknown key; "cloudlessctl explain spec" lists the keys',
    },
    {
      spec: '{rollout: {steps: [{manual: true}]}}',
      problem:
        'web.yaml:2:27: spec.rollout.steps[0].manual: unknown key; known: replicas, percent, wait, promotion, weightPercent, gate',
    },
    {
      spec: '{replicas: 2.5}',
      problem: 'web.yaml:2:18: spec.replicas: expected a whole number, got the number 2.5',
    },
    {
      spec: '{replicas: "2"}',
      problem:
        'web.yaml:2:18: spec.replicas: expected a whole number, got the string "2"; remove the quotes',
    },
    {
      spec: '{replicas: 3000000000}',
      problem:
        'web.yaml:2:18: spec.replicas: expected a whole number from 0 to 1000000, got the number 3000000000',
    },
    {
      spec: '{env: {PORT: 8080}}',
      problem:
        'web.yaml:2:20: spec.env["PORT"]: expected a string, got the number 8080; write "8080"',
    },
    {
      spec: '{env: {8080: a}}',
      problem:
        'web.yaml:2:14: spec.env: expected a string as key, got the number 8080; write "8080"',
    },
    { spec: '{env: [A]}', problem: 'web.yaml:2:13: spec.env: expected a map, got a list' },
    {
      spec: '{command: sleep 10}',
      problem: 'web.yaml:2:17: spec.command: expected a list, got the string "sleep 10"',
    },
    {
      spec: '{command: [sleep, 10]}',
      problem: 'web.yaml:2:25: spec.command[1]: expected a string, got the number 10; write "10"',
    },
    {
      spec: '{ports: [{containerPort: 80}, 81]}',
      problem: 'web.yaml:2:37: spec.ports[1]: expected a map, got the number 81',
    },
    { spec: '{image: }', problem: 'web.yaml:2:15: spec.image: expected a string, got nothing' },
    {
      spec: '{rollout: {strategy: rolling_update}}',
      problem:
        'web.yaml:2:28: spec.rollout.strategy: expected one of ROLLING_UPDATE, RECREATE, BLUE_GREEN, ' +
        'got the string "rolling_update"; did you mean ROLLING_UPDATE?',
    },
    {
      spec: '{mode: 1}',
      problem: 'web.yaml:2:14: spec.mode: expected one of REPLICATED, GLOBAL, got the number 1',
    },
    {
      spec: '{preStopDelay: 5}',
      problem:
        'web.yaml:2:22: spec.preStopDelay: expected a duration such as "500ms", "2s" or "1h30m", got the number 5; write "5s" for seconds',
    },
    {
      spec: '{preStopDelay: soon}',
      problem:
        'web.yaml:2:22: spec.preStopDelay: expected a duration such as "500ms", "2s" or "1h30m", got "soon"',
    },
    {
      spec: '{preStopDelay: }',
      problem:
        'web.yaml:2:22: spec.preStopDelay: expected a duration such as "500ms", "2s" or "1h30m", got nothing',
    },
    {
      spec: '{preStopDelay: *nowhere}',
      problem: 'web.yaml:2:22: the alias *nowhere is not defined',
    },
    {
      spec: '{preStopDelay: [1s]}',
      problem:
        'web.yaml:2:22: spec.preStopDelay: expected a duration such as "500ms", "2s" or "1h30m", got a list',
    },
    {
      spec: '{resources: {requests: {cpuMillis: "2"}}}',
      problem:
        'web.yaml:2:42: spec.resources.requests.cpuMillis: write "2m" for thousandths of a core or "2.0" for cores: ' +
        'without a unit the value is ambiguous',
    },
    {
      spec: '{resources: {limits: {memoryBytes: 64MB}}}',
      problem:
        'web.yaml:2:42: spec.resources.limits.memoryBytes: expected a quantity such as 67108864, "64Mi" or "500M", got "64MB"',
    },
    {
      spec: '{security: {privileged: yes}}',
      problem:
        'web.yaml:2:31: spec.security.privileged: expected true or false, got the string "yes"',
    },
    {
      spec: '{restartedAt: today}',
      problem:
        'web.yaml:2:21: spec.restartedAt: expected a time such as "2026-01-31T12:00:00Z", got the string "today"',
    },
    {
      spec: '{livenessProbe: {tcp: {port: a}, http: {}}}',
      problem: 'web.yaml:2:40: spec.livenessProbe.http: cannot be given together with tcp',
    },
    {
      spec: '{network: {egress: {allowed: [{cidr: "::/0", service: "*"}]}}}',
      problem:
        'web.yaml:2:52: spec.network.egress.allowed[0].service: cannot be given together with cidr',
    },
    {
      spec: '{network: {egress: {allowed: [10.0.0.0/8]}}}',
      problem:
        'web.yaml:2:37: spec.network.egress.allowed[0]: expected a map, got the string "10.0.0.0/8"',
    },
    {
      spec: '{rollout: {maxSurge: 1, max_surge: 2}}',
      problem: 'web.yaml:2:31: spec.rollout.max_surge: cannot be given together with maxSurge',
    },
    { spec: '{env: {A: a, A: b}}', problem: 'web.yaml:2:20: spec.env.A: is given twice' },
    { spec: '{image: a, image: b}', problem: 'web.yaml:2:18: spec.image: is given twice' },
    { spec: '{image: *nowhere}', problem: 'web.yaml:2:15: the alias *nowhere is not defined' },
    { spec: '{image: !secret x}', problem: 'web.yaml:2:15: Unresolved tag: !secret' },
    {
      spec: '{image: x',
      problem:
        'web.yaml:3:1: Flow map in block collection must be sufficiently indented and end with a }',
    },
    {
      spec: '{"<<": {image: x}}',
      problem: 'web.yaml:2:8: spec.<<: unknown key; "cloudlessctl explain spec" lists the keys',
    },
    { spec: '{<<: 3}', problem: 'web.yaml:2:12: spec: expected a map, got the number 3' },
    {
      spec: '{env: {__proto__: x}}',
      problem: 'web.yaml:2:14: spec.env["__proto__"]: cannot be used as a key',
    },
  ])('rejects the spec $spec with: $problem', ({ spec, problem }) => {
    expect(specProblem(spec)).toBe(problem);
  });

  it.each([
    { text: '', problem: 'web.yaml:1:1: contains no workload, service, route or config' },
    {
      text: '# only a comment\n',
      problem: 'web.yaml:1:1: contains no workload, service, route or config',
    },
    { text: 'hello', problem: 'web.yaml:1:1: expected a map, got the string "hello"' },
    { text: 'spec: {}', problem: 'web.yaml:1:1: name: is missing' },
    { text: 'name: a', problem: 'web.yaml:1:1: spec: is missing' },
    {
      text: 'name: A_b\nspec: {}',
      problem:
        'web.yaml:1:7: name: expected up to 63 lower-case letters, digits and inner hyphens, got the string "A_b"',
    },
    {
      text: 'kind: Pod\nname: a\nspec: {}',
      problem:
        'web.yaml:1:7: kind: expected Workload, Service, Route or Config, got the string "Pod"',
    },
    {
      text: 'apiVersion: v1\nname: a\nspec: {}',
      problem:
        'web.yaml:1:1: apiVersion: unknown key; namespace, name and spec belong at the top level',
    },
    {
      text: 'apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {}',
      problem:
        'web.yaml:1:1: is a Kubernetes object; convert the file with: cloudlessctl convert -f FILE',
    },
    {
      text: 'services: {web: {image: nginx}}\nvolumes: {}',
      problem:
        'web.yaml:1:1: is a Compose file; convert the file with: cloudlessctl convert -f FILE',
    },
    {
      text: 'nmae: a\nname: a\nspec: {}',
      problem: 'web.yaml:1:1: nmae: unknown key; did you mean name?',
    },
    {
      text: 'name: a\nspec: {}\n---\nname: a\nspec: {}',
      problem: 'web.yaml:4:1: the workload default/a is declared twice',
    },
  ])('rejects a document with: $problem', ({ text, problem }) => {
    expect(problems(text)[0]).toBe(problem);
  });

  it('lists all problems of a file', () => {
    expect(
      problems('name: web\nspec:\n  imag: x\n  replicas: many\n---\nname: B\nspec: {mode: X}\n'),
    ).toEqual([
      'web.yaml:3:3: spec.imag: unknown key; did you mean image?',
      'web.yaml:4:13: spec.replicas: expected a whole number, got the string "many"',
      'web.yaml:6:7: name: expected up to 63 lower-case letters, digits and inner hyphens, got the string "B"',
      'web.yaml:7:14: spec.mode: expected one of REPLICATED, GLOBAL, got the string "X"',
    ]);
  });

  it('rejects more than 1 MiB, 32 nested levels or 100 aliases, and bytes that are not UTF-8', () => {
    expect(problems(`name: ${'a'.repeat(1024 * 1024)}`)).toEqual([
      'web.yaml:1:1: larger than 1 MiB (1048582 bytes)',
    ]);
    expect(problems('['.repeat(500_000))).toEqual([
      'web.yaml:1:1: more than 32 nested maps and lists',
    ]);
    expect(problems(`name: a\nspec: {env: {A: ${'['.repeat(40)}${']'.repeat(40)}}}`)[0]).toContain(
      'expected a string, got a list',
    );
    expect(
      problems(
        `name: a\nspec: {env: {X: &x a${Array.from({ length: 101 }, (_, n) => `, K${n}: *x`).join('')}}}`,
      ),
    ).toContain('web.yaml:2:919: more than 100 aliases');
    expect(
      parseManifest('x', Uint8Array.of(0xff, 0xfe), 'default').problems.map(formatProblem),
    ).toEqual(['x:1:1: not UTF-8 text']);
  });

  it('rejects an alias to a node that contains the alias', () => {
    expect(problems('name: a\nspec: &s {placement: *s}')[0]).toBe(
      'web.yaml:2:11: spec.placement.placement: unknown key; known: regions, zones, locality, nodeSelector, affinity, antiAffinity, tolerations, spread',
    );
  });
});
