import { readFileSync, readdirSync } from 'node:fs';
import { toJson } from '@bufbuild/protobuf';
import { Ajv } from 'ajv';
import fc from 'fast-check';
import { parseAllDocuments } from 'yaml';
import { WorkloadSpecSchema } from '@cloudless/api';
import { manifestSchema } from '@cloudless/api/manifest-schema';
import { arbitrarySpec } from '../testing/arbitraries.js';

const ajv = new Ajv({ strict: false, allErrors: true, formats: { 'date-time': true } });
// Without the choice between the kinds and a list, whose problems would hide those of one object.
const { definitions } = manifestSchema;
const compile = (kind: string) => ajv.compile({ definitions, $ref: `#/definitions/${kind}` });
const validate = compile('Workload');
const validators: Readonly<Record<string, ReturnType<typeof compile>>> = {
  Workload: validate,
  Service: compile('Service'),
  Route: compile('Route'),
  Config: compile('Config'),
};
/** Keywords for the structure of a manifest; the others bound values. */
const STRUCTURE = ['type', 'additionalProperties', 'enum', 'not', 'required', 'const'];

/** Returns the problems of a manifest, each with its place. */
function problemsOf(manifest: unknown): readonly string[] {
  const { kind = 'Workload' } = manifest as { readonly kind?: string };
  const check = validators[kind];
  if (check === undefined) throw new Error(`no schema of the kind ${kind}`);
  check(manifest);
  return (check.errors ?? []).map(({ instancePath, message }) => `${instancePath}: ${message}`);
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

  const workload = { name: 'web', spec: {} };
  const config = { kind: 'Config', name: 'web.conf', data: { 'web.conf': 'listen 8080' } };
  const service = {
    kind: 'Service',
    name: 'web',
    spec: { workload: 'web', ports: [{ port: 80 }] },
  };

  const route = {
    kind: 'Route',
    name: 'shop',
    labels: { app: 'shop' },
    spec: {
      hosts: ['shop.example.com'],
      rules: [{ pathPrefix: '/', service: 'web', port: 'http', timeout: '90s', retries: 0 }],
      tls: { certificateSecret: 'shop-tls' },
      limits: { maxHeaderBytes: '16Ki', maxBodyBytes: '10Mi' },
    },
  };

  it.each([
    [workload, true],
    [service, true],
    [route, true],
    [config, true],
    [[workload, service, route, config], true],
    [{ ...route, kind: undefined }, false],
    ['web', false],
    [{ ...config, kind: 'Secret' }, false],
    [{ ...workload, kind: 'Config' }, false],
    [{ ...config, kind: undefined }, false],
    [{ ...workload, data: {} }, false],
  ])('accepts one object or a list: %j is %s', (manifest, isAccepted) => {
    expect(ajv.validate(manifestSchema, manifest)).toBe(isAccepted);
  });

  it.each(readdirSync(new URL('../../../../examples/', import.meta.url)).filter(isYaml))(
    'accepts examples/%s',
    (file) => {
      const text = readFileSync(new URL(`../../../../examples/${file}`, import.meta.url), 'utf8');
      for (const document of parseAllDocuments(text)) {
        const value: unknown = 'toJS' in document ? document.toJS() : undefined;
        expect(problemsOf(value)).toEqual([]);
      }
    },
  );

  it.each([
    { replicas: 3, labels: { app: 'web' } },
    { resources: { requests: { cpuMillis: '500m', memoryBytes: '64Mi' } } },
    { resources: { requests: { cpuMillis: 0.25, memoryBytes: 1024 } } },
    { terminationGracePeriod: '1h30m' },
    {
      network: {
        egress: {
          allowed: [{ cidr: '10.0.0.0/8', ports: [{ port: 5432 }] }, { service: 'shop/db' }],
        },
      },
    },
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
    [
      {
        name: 'web',
        spec: { network: { egress: { allowed: [{ cidr: '::/0', service: '*' }] } } },
      },
      '/spec/network/egress/allowed/0: must NOT be valid',
    ],
    [
      {
        name: 'web',
        spec: { network: { egress: { allowed: [{ service: '*', ports: [{ port: 0 }] }] } } },
      },
      'ports/0/port: must be >= 1',
    ],
    [{ kind: 'Config', name: 'a' }, "must have required property 'data'"],
    [{ kind: 'Config', name: 'A', data: {} }, '/name: must match pattern'],
    [{ kind: 'Config', name: 'a', data: { level: 1 } }, '/data/level: must be string'],
    [{ kind: 'Config', name: 'a', data: { '/x': '' } }, '/data: property name must be valid'],
    [{ kind: 'Config', name: 'a', binaryData: { x: '%' } }, '/binaryData/x: must match pattern'],
    [{ kind: 'Config', name: 'a', data: {}, spec: {} }, 'must NOT have additional properties'],
    [{ kind: 'Config', name: 'a', data: {}, immutable: 'yes' }, '/immutable: must be boolean'],
    [{ kind: 'Service', name: 'a', spec: { ports: [{ port: 0 }] } }, '/port: must be >= 1'],
    [{ kind: 'Route', name: 'a' }, "must have required property 'spec'"],
    [{ kind: 'Route', name: 'a', spec: { host: 'b.c' } }, '/spec: must NOT have additional'],
    [
      { kind: 'Route', name: 'a', spec: { rules: [{ service: 'web', port: 80 }] } },
      '/spec/rules/0/port: must be string',
    ],
    [{ kind: 'Service', name: 'a', spec: { port: 80 } }, '/spec: must NOT have additional'],
  ])('refuses %j: %s', (manifest, problem) => {
    expect(problemsOf(manifest).join('\n')).toContain(problem);
  });
});

function isYaml(file: string): boolean {
  return file.endsWith('.yaml');
}
