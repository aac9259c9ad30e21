import { readFileSync, readdirSync } from 'node:fs';
import { toJson } from '@bufbuild/protobuf';
import { Ajv } from 'ajv';
import fc from 'fast-check';
import { parseAllDocuments } from 'yaml';
import { WorkloadSpecSchema } from '@cloudless/api';
import { manifestSchema } from '@cloudless/api/manifest-schema';
import { arbitrarySpec } from '../testing/arbitraries.js';

const ajv = new Ajv({ strict: false, allErrors: true, formats: { 'date-time': true } });
// Without the choice between one workload and a list, whose problems would hide those of a workload.
const { definitions } = manifestSchema;
const validate = ajv.compile({ definitions, $ref: '#/definitions/Workload' });
/** Keywords for the structure of a manifest; the others bound values. */
const STRUCTURE = ['type', 'additionalProperties', 'enum', 'not', 'required', 'const'];

/** Returns the problems of a manifest, each with its place. */
function problemsOf(manifest: unknown): readonly string[] {
  validate(manifest);
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath}: ${message}`);
}

describe('manifestSchema', () => {
  it('accepts the structure of the JSON form of every spec', () => {
    fc.assert(
      fc.property(arbitrarySpec, (spec) => {
        validate({ name: 'web', spec: toJson(WorkloadSpecSchema, spec) });
        expect(validate.errors?.filter(({ keyword }) => STRUCTURE.includes(keyword)) ?? []).toEqual(
          [],
        );
      }),
    );
  });

  it('accepts one workload and a list of workloads', () => {
    const isManifest = ajv.compile(manifestSchema);
    expect(isManifest({ name: 'web', spec: {} })).toBe(true);
    expect(isManifest([{ name: 'web', spec: {} }])).toBe(true);
    expect(isManifest('web')).toBe(false);
  });

  it.each(readdirSync(new URL('../../../../examples/', import.meta.url)).filter(isYaml))(
    'accepts examples/%s',
    (file) => {
      const text = readFileSync(new URL(`../../../../examples/${file}`, import.meta.url), 'utf8');
      for (const document of parseAllDocuments(text)) {
        const value: unknown = 'toJS' in document ? document.toJS() : undefined;
        // The schema is that of workloads.
        const { kind = 'Workload' } = value as { readonly kind?: unknown };
        if (kind !== 'Workload') continue;
        expect(problemsOf(value)).toEqual([]);
      }
    },
  );

  it.each([
    { replicas: 3, labels: { app: 'web' } },
    { resources: { requests: { cpuMillis: '500m', memoryBytes: '64Mi' } } },
    { resources: { requests: { cpuMillis: 0.25, memoryBytes: 1024 } } },
    { terminationGracePeriod: '1h30m' },
  ])('accepts the quantities of %j', (spec) => {
    expect(problemsOf({ name: 'web', spec })).toEqual([]);
  });

  it.each([
    [{ spec: {} }, "must have required property 'name'"],
    [{ name: 'Web', spec: {} }, '/name: must match pattern'],
    [{ name: 'web', spec: { replica: 3 } }, '/spec: must NOT have additional properties'],
    [{ name: 'web', spec: { replicas: -1 } }, '/spec/replicas: must be >= 0'],
    [{ name: 'web', spec: { replicas: '3' } }, '/spec/replicas: must be integer'],
    [{ name: 'web', spec: { mode: 'ALL' } }, '/spec/mode: must be equal to one of'],
    [{ name: 'web', spec: { terminationGracePeriod: '10' } }, 'terminationGracePeriod: must match'],
    [
      { name: 'web', spec: { livenessProbe: { exec: { command: ['x'] }, tcp: { port: '80' } } } },
      '/spec/livenessProbe: must NOT be valid',
    ],
    [{ name: 'web', spec: { ports: [{ containerPort: 0 }] } }, 'containerPort: must be >= 1'],
  ])('refuses %j: %s', (manifest, problem) => {
    expect(problemsOf(manifest).join('\n')).toContain(problem);
  });
});

function isYaml(file: string): boolean {
  return file.endsWith('.yaml');
}
