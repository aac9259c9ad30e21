import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields, CloudlessError, toContainerId } from '@cloudless/base';
import { RecordingMeter, settle } from '@cloudless/base/testing';
import { ExecCommandRequestSchema, StreamLogsRequestSchema } from '@cloudless/api';
import { aStartOrder, aStopOrder, AgentTestBed, FakeStats } from '../testing/index.js';

interface Row {
  readonly metric: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** Makes the metric increase; called while replica `web-1` runs. */
  readonly act: (testBed: AgentTestBed) => Promise<unknown> | void;
}

const idOf = (testBed: AgentTestBed) => toContainerId(testBed.requireReport().containerId);
const startReplica = (testBed: AgentTestBed) =>
  testBed.coordinator.sendOrder(aStartOrder({ replicaId: 'web-2' }));
const stopReplica = (testBed: AgentTestBed) => testBed.coordinator.sendOrder(aStopOrder());
const crashContainer = async (testBed: AgentTestBed): Promise<void> => {
  testBed.machine.exit(idOf(testBed), 1);
  await testBed.clock.advance(5_000);
};
const followLogs = async (testBed: AgentTestBed): Promise<void> => {
  const value = create(StreamLogsRequestSchema, {
    containerId: testBed.requireReport().containerId,
    follow: true,
  });
  testBed.coordinator.openTunnel('t1', { case: 'logs', value });
  await settle();
  testBed.machine.write(idOf(testBed), 'stdout', 'hello\n');
};
const ports = [{ name: 'http', containerPort: 80 }];
const startProbedReplica = async (testBed: AgentTestBed): Promise<void> => {
  const readinessProbe = {
    check: { case: 'http', value: { path: '/', port: 'http' } },
    period: durationFromMs(1_000),
  } as const;
  testBed.coordinator.sendOrder(
    aStartOrder({ replicaId: 'web-3', spec: { ports, readinessProbe } }),
  );
  await testBed.clock.advance(2_000);
};
const startManyReplicas = (testBed: AgentTestBed): void => {
  testBed.runtime.start = () => new Promise(() => undefined);
  for (let number = 2; number <= 10; number += 1)
    testBed.coordinator.sendOrder(aStartOrder({ replicaId: `web-${number}` }));
};
const dropConnection = async (testBed: AgentTestBed): Promise<void> => {
  testBed.coordinator.dropConnections();
  await testBed.clock.advance(2_000);
};

const takeSamples = (testBed: AgentTestBed): Promise<void> => testBed.clock.advance(20_000);
const containerRow = (name: string, labels: Row['labels'] = {}): Row => ({
  metric: `cloudless_container_${name}`,
  labels: { namespace: 'default', workload: 'web', replica: 'web-1', ...labels },
  act: takeSamples,
});

const rows: readonly Row[] = [
  ...[
    'cpu_seconds_total',
    'cpu_user_seconds_total',
    'cpu_system_seconds_total',
    'cpu_limit_cores',
  ].map((name) => containerRow(name)),
  ...['cpu_periods_total', 'cpu_throttled_periods_total', 'cpu_throttled_seconds_total'].map(
    (name) => containerRow(name),
  ),
  ...['usage', 'working_set', 'limit', 'peak', 'file', 'anon', 'swap'].map((name) =>
    containerRow(`memory_${name}_bytes`),
  ),
  ...['read_bytes', 'written_bytes', 'reads', 'writes'].map((name) =>
    containerRow(`io_${name}_total`),
  ),
  ...['received', 'sent'].flatMap((direction) =>
    ['bytes', 'packets', 'errors', 'dropped'].map((name) =>
      containerRow(`network_${direction}_${name}_total`),
    ),
  ),
  ...['cpu', 'memory', 'io'].flatMap((resource) =>
    ['waiting', 'stalled'].map((name) =>
      containerRow(`pressure_${name}_seconds_total`, { resource }),
    ),
  ),
  ...['pids', 'pids_limit'].map((name) => containerRow(name)),
  { metric: 'cloudless_agent_container_starts_total', labels: { result: 'ok' }, act: startReplica },
  {
    metric: 'cloudless_agent_container_starts_total',
    labels: { result: 'failed' },
    act: (testBed) => {
      testBed.machine.failNextStart(new CloudlessError('exhausted', 'no room'));
      startReplica(testBed);
    },
  },
  { metric: 'cloudless_agent_container_start_duration_seconds', act: startReplica },
  {
    metric: 'cloudless_agent_image_pulls_total',
    labels: { result: 'ok' },
    act: (testBed) => pullImage(testBed),
  },
  {
    metric: 'cloudless_agent_image_pulls_total',
    labels: { result: 'failed' },
    act: (testBed) => pullImage(testBed, new CloudlessError('precondition', 'not found')),
  },
  { metric: 'cloudless_agent_image_pull_duration_seconds', act: (testBed) => pullImage(testBed) },
  {
    metric: 'cloudless_agent_container_stops_total',
    labels: { result: 'ok' },
    act: async (testBed) => (stopReplica(testBed), testBed.clock.advance(40_000)),
  },
  { metric: 'cloudless_agent_container_exits_total', act: crashContainer },
  { metric: 'cloudless_agent_runtime_event_lag_seconds', act: crashContainer },
  { metric: 'cloudless_agent_replica_restarts_total', act: crashContainer },
  {
    metric: 'cloudless_agent_replica_failed_starts_total',
    act: (testBed) => pullImage(testBed, new CloudlessError('precondition', 'not found')),
  },
  { metric: 'cloudless_agent_replicas', labels: { ready: 'true' }, act: startReplica },
  { metric: 'cloudless_agent_log_lines_read_total', act: followLogs },
  { metric: 'cloudless_agent_log_read_bytes_total', act: followLogs },
  { metric: 'cloudless_agent_tunnels_open', act: followLogs },
  {
    metric: 'cloudless_agent_execs_total',
    act: (testBed) => {
      const value = create(ExecCommandRequestSchema, { replicaId: 'web-1', command: ['true'] });
      testBed.coordinator.openTunnel('t1', { case: 'exec', value });
    },
  },
  {
    metric: 'cloudless_agent_probe_requests_total',
    labels: { protocol: 'http', answered: 'true' },
    act: startProbedReplica,
  },
  { metric: 'cloudless_agent_probe_duration_seconds', act: startProbedReplica },
  { metric: 'cloudless_agent_starts_waiting', act: startManyReplicas },
  { metric: 'cloudless_agent_dials_total', labels: { result: 'ok' }, act: dropConnection },
  { metric: 'cloudless_agent_sessions_total', act: dropConnection },
];

async function pullImage(testBed: AgentTestBed, failure?: CloudlessError): Promise<void> {
  testBed.machine.images.set('nginx', { pullMs: 10, ...definedFields({ failure }) });
  testBed.coordinator.sendOrder(aStartOrder({ replicaId: 'image-1', spec: { image: 'nginx' } }));
  await testBed.clock.advance(10);
}

async function createTestBed(meter: RecordingMeter): Promise<AgentTestBed> {
  const testBed = new AgentTestBed();
  testBed.meter = meter;
  testBed.stats = new FakeStats(testBed.clock);
  await testBed.start();
  testBed.coordinator.sendOrder(aStartOrder());
  await settle();
  return testBed;
}

describe('metrics of an agent', () => {
  it.each(rows)(
    'include $metric $labels, which increases when the agent acts',
    async ({ metric, labels = {}, act }) => {
      const meter = new RecordingMeter();
      const testBed = await createTestBed(meter);
      const before = await meter.read(metric, labels);
      await act(testBed);
      await settle();
      expect(await meter.read(metric, labels)).toBeGreaterThan(before);
    },
  );

  it('count a failed start as no restart, and a restart as no failed start', async () => {
    const meter = new RecordingMeter();
    const testBed = await createTestBed(meter);
    const readCounts = async () => [
      await meter.read('cloudless_agent_replica_restarts_total'),
      await meter.read('cloudless_agent_replica_failed_starts_total'),
    ];
    await pullImage(testBed, new CloudlessError('precondition', 'not found'));
    expect(await readCounts()).toEqual([0, 1]);
    await crashContainer(testBed);
    const [restarts, failedStarts = 0] = await readCounts();
    expect([restarts, failedStarts > 1]).toEqual([1, true]); // the pull fails again meanwhile
  });

  it('set cloudless_agent_session_connected to 0 when the session ends', async () => {
    const meter = new RecordingMeter();
    const testBed = await createTestBed(meter);
    expect(await meter.read('cloudless_agent_session_connected')).toBe(1);
    testBed.coordinator.dropConnections();
    await settle();
    expect(await meter.read('cloudless_agent_session_connected')).toBe(0);
  });

  it('remove the series of a container when it exits, and start new ones with the next container', async () => {
    const meter = new RecordingMeter();
    const testBed = await createTestBed(meter);
    await testBed.clock.advance(3_000);
    const [first] = meter.labelsOf('cloudless_container_cpu_seconds_total');
    expect(first).toEqual({
      namespace: 'default',
      workload: 'web',
      replica: 'web-1',
      container: idOf(testBed),
    });
    await crashContainer(testBed);
    await testBed.clock.advance(3_000);
    const shown = [...meter.specs.keys()].filter((name) => name.startsWith('cloudless_container_'));
    const containers = new Set(
      shown.flatMap((name) => meter.labelsOf(name).map(({ container: id }) => id)),
    );
    expect([...containers]).toEqual([idOf(testBed)]);
    expect(idOf(testBed)).not.toBe(first?.['container']);
    stopReplica(testBed);
    await testBed.clock.advance(60_000);
    expect(shown.flatMap((name) => meter.labelsOf(name))).toEqual([]);
  });

  it('all have a row in the table of this spec, or a spec elsewhere', async () => {
    const meter = new RecordingMeter();
    await createTestBed(meter);
    const shown = [
      'cloudless_agent_session_connected',
      // in certificate-client.spec
      'cloudless_agent_certificate_expiry_timestamp_seconds',
      'cloudless_agent_certificate_renewals_total',
      ...rows.map(({ metric }) => metric),
    ];
    expect([...meter.specs.keys()].filter((name) => !shown.includes(name))).toEqual([]);
  });
});
