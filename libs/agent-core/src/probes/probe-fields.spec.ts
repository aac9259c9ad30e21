import { fromJson, type JsonObject } from '@bufbuild/protobuf';
import { ProbeSchema, WorkloadSpecSchema } from '@cloudless/api';
import { settle } from '@cloudless/base/testing';
import { fromContainerLabels } from '../index.js';
import { aStartOrder, AgentTestBed } from '../testing/index.js';

/** Paths of the set fields of a probe. */
const LEAVES = ProbeSchema.fields.flatMap((field) =>
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

/** Two probes that differ only in one field. */
const rows: Readonly<Record<string, readonly [JsonObject, JsonObject]>> = {
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
 * Everything that an agent does and reports for a container that fails checks at first and at times
 * later, and sometimes answers slowly.
 */
async function outcomeOf(name: string, probe: JsonObject): Promise<string> {
  const testBed = new AgentTestBed();
  const seen: unknown[] = [];
  let before = '';
  const isWell = (): boolean => testBed.clock.now() % 13_000 > 4_500;
  testBed.http = (path) => (path === '/healthz' || !isWell() ? 500 : 200);
  testBed.grpc = (service) => (service !== '' || !isWell() ? 'NOT_SERVING' : 'SERVING');
  testBed.closedPorts.add('*');
  testBed.machine.setExecHandler((_id, { command }) => {
    seen.push([testBed.clock.now(), command]);
    // Without a result of the test the command runs until its timeout.
    const hangs = testBed.clock.now() < 1_100 || testBed.clock.now() > 25_000;
    return hangs ? undefined : { exitCode: isWell() ? 0 : 1 };
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
    if (step === 100) await deafen('http', testBed);
    await testBed.clock.advance(100);
    const now = JSON.stringify(testBed.summarizeReport());
    if (now !== before) seen.push([testBed.clock.now(), now]);
    before = now;
  }
  const containers = (await testBed.runtime.list()).map(
    ({ labels }) => fromContainerLabels(labels)?.restarts,
  );
  return JSON.stringify([seen, testBed.probeRequests, containers]);
}

async function deafen(portName: string, { runtime, closedPorts }: AgentTestBed): Promise<void> {
  const endpoints = (await runtime.list()).flatMap((status) => status.endpoints);
  for (const { ip, port } of endpoints.filter((endpoint) => endpoint.portName === portName))
    closedPorts.add(`${ip}:${port}`);
}

describe.each(['livenessProbe', 'readinessProbe', 'startupProbe'])('each field of %s', (name) => {
  it('has a row in the table of this spec', () => {
    expect(Object.keys(rows).sort()).toEqual([...LEAVES].sort());
  });

  // Liveness and startup know only 1: the API refuses more.
  const felt = Object.entries(rows).filter(
    ([leaf]) => leaf !== 'success_threshold' || name === 'readinessProbe',
  );
  it.each(felt)('%s changes the behaviour of the agent', async (_leaf, [before, after]) => {
    expect(await outcomeOf(name, after)).not.toBe(await outcomeOf(name, before));
  });

  it('gives the same outcome for the same probe', async () => {
    expect(await outcomeOf(name, exec())).toBe(await outcomeOf(name, exec()));
  });
});
