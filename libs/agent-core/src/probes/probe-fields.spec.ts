import { fromJson, type JsonObject } from '@bufbuild/protobuf';
import { ProbeSchema, WorkloadSpecSchema } from '@cloudless/api';
import { settle } from '@cloudless/base/testing';
import { fromContainerLabels } from '../index.js';
import { aStartOrder, AgentTestBed } from '../testing/index.js';

/** Paths of all fields of a probe, such as `http.path`. */
const FIELD_PATHS = ProbeSchema.fields.flatMap((field) =>
  field.message?.typeName.startsWith('cloudless.') === true
    ? field.message.fields.map((inner) => `${field.name}.${inner.name}`)
    : [field.name],
);

const exec = (fields: JsonObject = {}): JsonObject => ({
  exec: { command: ['check'] },
  period: '1s',
  ...fields,
});
const http = (fields: JsonObject): JsonObject => ({
  http: { port: 'http', ...fields },
  period: '1s',
});

/** By field path: two probes that differ only in this field. */
const probePairs: Readonly<Record<string, readonly [JsonObject, JsonObject]>> = {
  'exec.command': [exec(), exec({ exec: { command: ['other'] } })],
  'http.path': [http({}), http({ path: '/healthz' })],
  'http.port': [http({}), { http: { port: 'admin' }, period: '1s' }],
  'http.headers': [http({}), http({ headers: { a: 'b' } })],
  'tcp.port': [
    { tcp: { port: 'http' }, period: '1s' },
    { tcp: { port: 'admin' }, period: '1s' },
  ],
  'grpc.port': [{ grpc: { port: 'http' } }, { grpc: { port: 'admin' } }],
  'grpc.service': [{ grpc: { port: 'http' } }, { grpc: { port: 'http', service: 'shop.Cart' } }],
  initial_delay: [exec(), exec({ initialDelay: '5s' })],
  period: [exec(), exec({ period: '2s' })],
  timeout: [exec(), exec({ timeout: '0.2s' })],
  success_threshold: [exec(), exec({ successThreshold: 2 })],
  failure_threshold: [exec(), exec({ failureThreshold: 1 })],
};

/**
 * Returns, as JSON, the probe requests, the reports and the restarts of an agent during 35 s. The
 * container fails checks at first and at intervals later, and its commands hang at times.
 * @param name - Field of the spec, such as `livenessProbe`.
 */
async function recordBehaviour(name: string, probe: JsonObject): Promise<string> {
  const testBed = new AgentTestBed();
  const observations: unknown[] = [];
  let before = '';
  const passesChecks = (): boolean => testBed.clock.now() % 13_000 > 4_500;
  testBed.http = (path) => (path === '/healthz' || !passesChecks() ? 500 : 200);
  testBed.grpc = (service) => (service !== '' || !passesChecks() ? 'NOT_SERVING' : 'SERVING');
  testBed.closedPorts.add('*');
  testBed.machine.setExecHandler((_id, { command }) => {
    observations.push([testBed.clock.now(), command]);
    // When this handler returns undefined, the command runs until its timeout.
    const hangs = testBed.clock.now() < 1_100 || testBed.clock.now() > 25_000;
    return hangs ? undefined : { exitCode: passesChecks() ? 0 : 1 };
  });
  await testBed.start();
  const ports = [
    { name: 'http', containerPort: 80 },
    { name: 'admin', containerPort: 81 },
  ];
  const spec = fromJson(WorkloadSpecSchema, { command: ['server'], ports, [name]: probe });
  testBed.coordinator.sendOrder(aStartOrder({ spec }));
  await settle();
  for (let step = 0; step < 350; step += 1) {
    if (step === 20) testBed.closedPorts.clear();
    if (step === 100) await closePort('http', testBed);
    await testBed.clock.advance(100);
    const now = JSON.stringify(testBed.summarizeReport());
    if (now !== before) observations.push([testBed.clock.now(), now]);
    before = now;
  }
  const containers = (await testBed.runtime.list()).map(
    ({ labels }) => fromContainerLabels(labels)?.restarts,
  );
  return JSON.stringify([observations, testBed.probeRequests, containers]);
}

async function closePort(portName: string, { runtime, closedPorts }: AgentTestBed): Promise<void> {
  const endpoints = (await runtime.list()).flatMap((status) => status.endpoints);
  for (const { ip, port } of endpoints.filter((endpoint) => endpoint.portName === portName))
    closedPorts.add(`${ip}:${port}`);
}

describe.each(['livenessProbe', 'readinessProbe', 'startupProbe'])('Agent with a %s', (name) => {
  it('is tested with a pair of probes for each field', () => {
    expect(Object.keys(probePairs).sort()).toEqual([...FIELD_PATHS].sort());
  });

  // The API accepts only a success threshold of 1 for liveness and startup probes.
  const effectiveFields = Object.entries(probePairs).filter(
    ([leaf]) => leaf !== 'success_threshold' || name === 'readinessProbe',
  );
  it.each(effectiveFields)(
    'behaves differently when %s differs',
    async (_leaf, [before, after]) => {
      expect(await recordBehaviour(name, after)).not.toBe(await recordBehaviour(name, before));
    },
  );

  it('behaves in the same way when the probe is the same', async () => {
    expect(await recordBehaviour(name, exec())).toBe(await recordBehaviour(name, exec()));
  });
});
