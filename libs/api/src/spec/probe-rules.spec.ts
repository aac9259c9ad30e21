import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, durationMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import {
  CreateWorkloadRequestSchema,
  Port_Protocol,
  WorkloadSpecSchema,
  checkSpec,
  findProbePort,
  toTemplate,
  validateMessage,
  withDefaults,
  type ProbeSchema,
} from '../index.js';
import { aSpec } from '../testing/index.js';

type Probe = Exclude<MessageInitShape<typeof ProbeSchema>, { $typeName: string }>;
type Kind = 'livenessProbe' | 'readinessProbe' | 'startupProbe';

const ports = [
  { name: 'http', containerPort: 80 },
  { containerPort: 81 },
  { name: 'dns', containerPort: 53, protocol: Port_Protocol.UDP },
];
const http = (value: object): Probe => ({
  check: { case: 'http', value: { port: 'http', ...value } },
});
const tcp = (port: string): Probe => ({ check: { case: 'tcp', value: { port } } });
const exec = (...command: string[]): Probe => ({ check: { case: 'exec', value: { command } } });

/**
 * Returns the violations of a spec with this probe: those of the proto rules, or else those of
 * `checkSpec`.
 */
function problemsOf(kind: Kind, probe: Probe, declared: object[] = ports): string[] {
  const spec = aSpec({ ports: declared, [kind]: probe });
  try {
    validateMessage(
      CreateWorkloadRequestSchema,
      create(CreateWorkloadRequestSchema, { name: 'web', spec }),
    );
    checkSpec(spec);
    return [];
  } catch (reason) {
    return (reason as Error).message.split('; ');
  }
}

const ASCII =
  'must begin with "/" and be percent-encoded: no spaces or other than visible ASCII characters';

describe('checkSpec for probes', () => {
  it.each<{ name: string; probe: Probe; problem: string }>([
    {
      name: 'a probe without a check',
      probe: {},
      problem: ': one of exec, http, tcp and grpc is required',
    },
    {
      name: 'a probe with a period only',
      probe: { period: durationFromMs(500) },
      problem: ': one of exec, http, tcp and grpc is required',
    },
    { name: 'an empty command', probe: exec(), problem: '.exec.command: must not be empty' },
    {
      name: 'an empty executable',
      probe: exec('', 'a'),
      problem: '.exec.command[0]: must name an executable',
    },
    {
      name: 'a NUL character in the command',
      probe: exec('a', 'b\0'),
      problem: '.exec.command[1]: must not contain a NUL character',
    },
    {
      name: 'an empty port',
      probe: tcp(''),
      problem:
        '.tcp.port: must name a declared TCP port, by name or number (declared: http, port-81)',
    },
    {
      name: 'an unknown port',
      probe: http({ port: 'web' }),
      problem:
        '.http.port: "web" is not a declared TCP port, by name or number (declared: http, port-81)',
    },
    {
      name: 'a port number that is not declared',
      probe: tcp('8080'),
      problem:
        '.tcp.port: "8080" is not a declared TCP port, by name or number (declared: http, port-81)',
    },
    {
      name: 'a UDP port',
      probe: { check: { case: 'grpc', value: { port: 'dns' } } },
      problem:
        '.grpc.port: "dns" is not a declared TCP port, by name or number (declared: http, port-81)',
    },
    { name: 'a relative path', probe: http({ path: 'healthz' }), problem: `.http.path: ${ASCII}` },
    { name: 'a space in the path', probe: http({ path: '/a b' }), problem: `.http.path: ${ASCII}` },
    {
      name: 'a line break in the path',
      probe: http({ path: '/a\n' }),
      problem: `.http.path: ${ASCII}`,
    },
    {
      name: 'a malformed header name',
      probe: http({ headers: { 'x y': 'a' } }),
      problem: `.http.headers["x y"]: the key must be a header name: letters, digits and !#$%&'*+.^_\`|~-`,
    },
    {
      name: 'a line break in a header',
      probe: http({ headers: { x: 'a\r\nb: c' } }),
      problem: '.http.headers["x"]: must be visible ASCII characters and spaces',
    },
    {
      name: 'a header that only the agent may set',
      probe: http({ headers: { 'Content-Length': '5' } }),
      problem: '.http.headers["Content-Length"]: is set by the agent itself',
    },
    {
      name: 'a header in two letter cases',
      probe: http({ headers: { a: '1', A: '2' } }),
      problem: '.http.headers["A"]: is set twice in different letter case',
    },
    {
      name: 'a negative delay',
      probe: { ...tcp('http'), initialDelay: { seconds: -1n } },
      problem: '.initial_delay: must be from 0s to 86400s',
    },
    {
      name: 'a period of 0',
      probe: { ...tcp('http'), period: durationFromMs(0) },
      problem: '.period: must be from 0.100s to 86400s',
    },
    {
      name: 'a timeout of 0',
      probe: { ...tcp('http'), timeout: durationFromMs(0) },
      problem: '.timeout: must be from 0.010s to 3600s',
    },
    {
      name: 'a negative threshold',
      probe: { ...tcp('http'), failureThreshold: -1 },
      problem: '.failure_threshold: must be from 0 to 100000',
    },
  ])('rejects $name', ({ probe, problem }) => {
    expect(problemsOf('readinessProbe', probe)).toEqual([`spec.readiness_probe${problem}`]);
  });

  it.each<{ name: string; kind: Kind; probe: Probe }>([
    { name: 'the name of a port', kind: 'livenessProbe', probe: tcp('http') },
    { name: 'the number of a port', kind: 'livenessProbe', probe: tcp('81') },
    { name: 'the default name of a port', kind: 'startupProbe', probe: tcp('port-81') },
    { name: 'a path with a query', kind: 'readinessProbe', probe: http({ path: '/a%20b?c=d&e' }) },
    {
      name: 'an HTTP check without a path',
      kind: 'readinessProbe',
      probe: http({ headers: { Host: 'a b' } }),
    },
    {
      name: 'the shortest times',
      kind: 'readinessProbe',
      probe: { ...exec('a'), period: durationFromMs(100), timeout: durationFromMs(10) },
    },
    {
      name: 'a success_threshold of 5 of a readiness probe',
      kind: 'readinessProbe',
      probe: { ...exec('a'), successThreshold: 5 },
    },
    {
      name: 'a success_threshold of 1 of a liveness probe',
      kind: 'livenessProbe',
      probe: { ...exec('a'), successThreshold: 1 },
    },
    {
      name: 'a gRPC check of a service',
      kind: 'livenessProbe',
      probe: { check: { case: 'grpc', value: { port: 'http', service: 'a.B' } } },
    },
  ])('accepts $name', ({ kind, probe }) => {
    expect(problemsOf(kind, probe)).toEqual([]);
  });

  it.each([
    { kind: 'livenessProbe', field: 'liveness_probe' },
    { kind: 'startupProbe', field: 'startup_probe' },
  ] as const)('rejects a success_threshold above 1 of $field', ({ kind, field }) => {
    expect(problemsOf(kind, { ...exec('a'), successThreshold: 2 })).toEqual([
      `spec.${field}.success_threshold: must be 1 here`,
    ]);
  });

  it('rejects a probe of a port when the spec declares no port', () => {
    expect(problemsOf('livenessProbe', tcp('http'), [])).toEqual([
      'spec.liveness_probe.tcp.port: "http" is not a declared TCP port, by name or number (spec.ports declares no TCP port)',
    ]);
  });
});

describe('findProbePort', () => {
  it('prefers a port with the given text as its name to one with that number', () => {
    const declared = aSpec({
      ports: [{ containerPort: 81 }, { name: '81', containerPort: 82 }],
    }).ports;
    expect(findProbePort(declared, '81')?.containerPort).toBe(82);
  });
});

describe('withDefaults for probes', () => {
  it('sets the same defaults in liveness, readiness and startup probe', () => {
    const { livenessProbe, readinessProbe, startupProbe } = withDefaults(
      aSpec({
        ports,
        livenessProbe: http({}),
        readinessProbe: tcp('http'),
        startupProbe: exec('a'),
      }),
    );
    for (const probe of [livenessProbe, readinessProbe, startupProbe]) {
      expect(
        [probe?.initialDelay, probe?.period, probe?.timeout].map(
          (value) => value && durationMs(value),
        ),
      ).toEqual([0, 10_000, 1_000]);
      expect(probe).toMatchObject({ successThreshold: 1, failureThreshold: 3 });
    }
    expect(livenessProbe?.check.value).toMatchObject({ path: '/', port: 'http' });
  });

  it('adds no probe and overrides no value', () => {
    const { livenessProbe, readinessProbe, startupProbe } = withDefaults(aSpec({}));
    expect([livenessProbe, readinessProbe, startupProbe]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    const given = {
      ...http({ path: '/x' }),
      initialDelay: durationFromMs(1),
      period: durationFromMs(200),
      timeout: durationFromMs(30),
    };
    const full = { ...given, successThreshold: 4, failureThreshold: 5 };
    expect(withDefaults(aSpec({ readinessProbe: full })).readinessProbe).toMatchObject(full);
  });

  it('gives equal templates only for equal probes', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 9 }), (one, other) => {
        const templates = [one, other].map((failureThreshold) =>
          toTemplate(aSpec({ livenessProbe: { ...exec('a'), failureThreshold } })),
        );
        if (one === other) expect(templates[0]).toEqual(templates[1]);
        else expect(templates[0]).not.toEqual(templates[1]);
      }),
    );
    expect(
      toTemplate(
        create(WorkloadSpecSchema, { livenessProbe: { ...exec('a'), failureThreshold: 3 } }),
      ),
    ).toEqual(toTemplate(create(WorkloadSpecSchema, { livenessProbe: exec('a') })));
  });
});
