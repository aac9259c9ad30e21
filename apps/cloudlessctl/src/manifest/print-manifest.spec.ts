import { create } from '@bufbuild/protobuf';
import { DurationSchema, durationFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { WorkloadSchema, Rollout_Strategy } from '@cloudless/api';
import type { WorkloadSpec } from '@cloudless/api';
import { toMessageJson } from '../call/cli-session.js';
import { aSpec, arbitrarySpec } from '../testing/arbitraries.js';
import { aWorkload } from '../testing/run-cli.js';
import { parseManifest } from './parse-manifest.js';
import { printManifests } from './print-manifest.js';
import { printYaml } from './print-yaml.js';

const parse = (text: string) =>
  parseManifest('web.yaml', new TextEncoder().encode(text), 'default');
const toEntry = (spec: WorkloadSpec, name = 'web') => ({ namespace: 'prod', name, spec });

describe('printManifests', () => {
  it('prints only what the spec sets, with quantities as users write them', () => {
    const spec = aSpec({
      image: 'web:2',
      command: ['sh', '-c', 'while true; do\n  date\ndone\n'],
      replicas: 3,
      resources: {
        requests: { cpuMillis: 500, memoryBytes: 32n << 20n },
        limits: { cpuMillis: 2000, memoryBytes: 1_500n },
      },
      rollout: { strategy: Rollout_Strategy.BLUE_GREEN, maxSurge: 2 },
      terminationGracePeriod: durationFromMs(90_000),
    });
    expect(printManifests([toEntry(spec), toEntry(aSpec({ image: 'a' }), 'api')])).toBe(
      `kind: Workload
namespace: prod
name: web
spec:
  image: web:2
  command:
    - sh
    - -c
    - |
      while true; do
        date
      done
  resources:
    requests:
      cpuMillis: 500m
      memoryBytes: 32Mi
    limits:
      cpuMillis: 2000m
      memoryBytes: 1500
  replicas: 3
  terminationGracePeriod: 1m30s
  rollout:
    strategy: BLUE_GREEN
    maxSurge: 2
---
kind: Workload
namespace: prod
name: api
spec:
  image: a
`,
    );
  });

  it.each([
    [0n, 0, '0s'],
    [0n, 500_000_000, '500ms'],
    [0n, 1, '0.000000001s'],
    [1n, 500_000_000, '1.5s'],
    [30n, 0, '30s'],
    [5_405n, 0, '1h30m5s'],
    [-60n, 0, '-1m'],
  ])('prints a duration of %i s and %i ns as %s', (seconds, nanos, text) => {
    const terminationGracePeriod = create(DurationSchema, { seconds, nanos });
    expect(printManifests([toEntry(aSpec({ terminationGracePeriod }))])).toContain(
      `terminationGracePeriod: ${text}\n`,
    );
  });

  it('returns the same spec for any spec after the manifest is parsed', () => {
    fc.assert(
      fc.property(arbitrarySpec, (spec) => {
        const { workloads, problems } = parse(printManifests([toEntry(spec)]));
        expect(problems).toEqual([]);
        expect(workloads).toEqual([toEntry(spec)]);
      }),
      { numRuns: 50 },
    );
  });
});

describe('the output of get as a manifest', () => {
  it('gives the same spec and the generation for any spec, for one workload and for a list, in YAML and in JSON', () => {
    fc.assert(
      fc.property(arbitrarySpec, fc.boolean(), (spec, isYaml) => {
        const print = isYaml ? printYaml : (value: unknown) => JSON.stringify(value);
        const one = toMessageJson(WorkloadSchema, { ...aWorkload({ namespace: 'prod' }), spec });
        const two = toMessageJson(WorkloadSchema, {
          ...aWorkload({ namespace: 'prod', name: 'b' }),
          spec,
        });
        expect(parse(print(one))).toEqual({
          workloads: [{ ...toEntry(spec), generation: 3n }],
          services: [],
          routes: [],
          configs: [],
          problems: [],
        });
        expect(parse(print({ workloads: [one, two] }))).toEqual({
          workloads: [toEntry(spec), toEntry(spec, 'b')].map((entry) => ({
            ...entry,
            generation: 3n,
          })),
          services: [],
          routes: [],
          configs: [],
          problems: [],
        });
      }),
      { numRuns: 30 },
    );
  });

  it('names the position of a problem in a list', () => {
    const text =
      'workloads:\n  - name: web\n    createdAt: x\n    spec: {}\n  - nam: b\n    spec: {}\n';
    expect(parse(text).problems.map(({ line, path }) => `${line} ${path}`)).toEqual([
      '5 workloads[1].nam',
      '5 workloads[1].name',
    ]);
  });
});

describe('permissions of the files of secrets', () => {
  it.each([
    ['mode: 0400', 0o400],
    ['mode: "0440"', 0o440],
    ['mode: 0o444', 0o444],
    ['mode: 292', 0o444],
  ])('reads %s', (mode, expected) => {
    const text = `name: web\nspec: { secrets: [{ name: db, ${mode} }] }`;
    const { workloads, problems } = parse(text);
    expect(problems).toEqual([]);
    expect(workloads[0]?.spec.secrets[0]?.mode).toBe(expected);
    expect(printManifests(workloads)).toMatch(/mode: "04(00|40|44)"/);
  });

  it('names the octal form of a number without its zero', () => {
    const { problems } = parse('name: web\nspec: { secrets: [{ name: db, mode: 400 }] }');
    expect(problems[0]?.message).toBe(
      'expected the permissions 0400, 0440 or 0444, got the number 400; write 0400',
    );
  });
});
