import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields, CloudlessError, toContainerId } from '@cloudless/base';
import { RecordingMeter, settle } from '@cloudless/base/testing';
import { ExecCommandRequestSchema, StreamLogsRequestSchema } from '@cloudless/api';
import { aStartOrder, aStopOrder, AgentTestBed, FakeStats } from '../testing/index.js';

interface Row {
  readonly metric: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** Makes the metric change while replica `web-1` runs. */
  readonly act: (world: AgentTestBed) => Promise<unknown> | void;
}

const idOf = (world: AgentTestBed) => toContainerId(world.requireReport().containerId);
const started = (world: AgentTestBed) =>
  world.coordinator.sendOrder(aStartOrder({ replicaId: 'web-2' }));
const stopped = (world: AgentTestBed) => world.coordinator.sendOrder(aStopOrder());
const crashed = async (world: AgentTestBed): Promise<void> => {
  world.machine.exit(idOf(world), 1);
  await world.clock.advance(5_000);
};
const followed = async (world: AgentTestBed): Promise<void> => {
  const value = create(StreamLogsRequestSchema, {
    containerId: world.requireReport().containerId,
    follow: true,
  });
  world.coordinator.openTunnel('t1', { case: 'logs', value });
  await settle();
  world.machine.write(idOf(world), 'stdout', 'hello\n');
};
const ports = [{ name: 'http', containerPort: 80 }];
const probed = async (world: AgentTestBed): Promise<void> => {
  const readinessProbe = {
    check: { case: 'http', value: { path: '/', port: 'http' } },
    period: durationFromMs(1_000),
  } as const;
  world.coordinator.sendOrder(aStartOrder({ replicaId: 'web-3', spec: { ports, readinessProbe } }));
  await world.clock.advance(2_000);
};
const manyStarts = (world: AgentTestBed): void => {
  world.runtime.start = () => new Promise(() => undefined);
  for (let number = 2; number <= 10; number += 1)
    world.coordinator.sendOrder(aStartOrder({ replicaId: `web-${number}` }));
};
const dropped = async (world: AgentTestBed): Promise<void> => {
  world.coordinator.dropConnections();
  await world.clock.advance(2_000);
};

const sampled = (world: AgentTestBed): Promise<void> => world.clock.advance(20_000);
const container = (name: string, labels: Row['labels'] = {}): Row => ({
  metric: `cloudless_container_${name}`,
  labels: { namespace: 'default', workload: 'web', replica: 'web-1', ...labels },
  act: sampled,
});

const rows: readonly Row[] = [
  ...[
    'cpu_seconds_total',
    'cpu_user_seconds_total',
    'cpu_system_seconds_total',
    'cpu_limit_cores',
  ].map((name) => container(name)),
  ...['cpu_periods_total', 'cpu_throttled_periods_total', 'cpu_throttled_seconds_total'].map(
    (name) => container(name),
  ),
  ...['usage', 'working_set', 'limit', 'peak', 'file', 'anon', 'swap'].map((name) =>
    container(`memory_${name}_bytes`),
  ),
  ...['read_bytes', 'written_bytes', 'reads', 'writes'].map((name) =>
    container(`io_${name}_total`),
  ),
  ...['received', 'sent'].flatMap((way) =>
    ['bytes', 'packets', 'errors', 'dropped'].map((name) =>
      container(`network_${way}_${name}_total`),
    ),
  ),
  ...['cpu', 'memory', 'io'].flatMap((resource) =>
    ['waiting', 'stalled'].map((name) => container(`pressure_${name}_seconds_total`, { resource })),
  ),
  ...['pids', 'pids_limit'].map((name) => container(name)),
  { metric: 'cloudless_agent_container_starts_total', labels: { result: 'ok' }, act: started },
  {
    metric: 'cloudless_agent_container_starts_total',
    labels: { result: 'failed' },
    act: (world) => {
      world.machine.failNextStart(new CloudlessError('exhausted', 'no room'));
      started(world);
    },
  },
  { metric: 'cloudless_agent_container_start_duration_seconds', act: started },
  {
    metric: 'cloudless_agent_image_pulls_total',
    labels: { result: 'ok' },
    act: (world) => pulled(world),
  },
  {
    metric: 'cloudless_agent_image_pulls_total',
    labels: { result: 'failed' },
    act: (world) => pulled(world, new CloudlessError('precondition', 'not found')),
  },
  { metric: 'cloudless_agent_image_pull_duration_seconds', act: (world) => pulled(world) },
  {
    metric: 'cloudless_agent_container_stops_total',
    labels: { result: 'ok' },
    act: async (world) => (stopped(world), world.clock.advance(40_000)),
  },
  { metric: 'cloudless_agent_container_exits_total', act: crashed },
  { metric: 'cloudless_agent_runtime_event_lag_seconds', act: crashed },
  { metric: 'cloudless_agent_replica_restarts_total', act: crashed },
  { metric: 'cloudless_agent_replicas', labels: { ready: 'true' }, act: started },
  { metric: 'cloudless_agent_log_lines_read_total', act: followed },
  { metric: 'cloudless_agent_log_read_bytes_total', act: followed },
  { metric: 'cloudless_agent_tunnels_open', act: followed },
  {
    metric: 'cloudless_agent_execs_total',
    act: (world) => {
      const value = create(ExecCommandRequestSchema, { replicaId: 'web-1', command: ['true'] });
      world.coordinator.openTunnel('t1', { case: 'exec', value });
    },
  },
  {
    metric: 'cloudless_agent_probe_requests_total',
    labels: { protocol: 'http', answered: 'true' },
    act: probed,
  },
  { metric: 'cloudless_agent_probe_duration_seconds', act: probed },
  { metric: 'cloudless_agent_starts_waiting', act: manyStarts },
  { metric: 'cloudless_agent_dials_total', labels: { result: 'ok' }, act: dropped },
  { metric: 'cloudless_agent_sessions_total', act: dropped },
];

async function pulled(world: AgentTestBed, failure?: CloudlessError): Promise<void> {
  world.machine.images.set('nginx', { pullMs: 10, ...definedFields({ failure }) });
  world.coordinator.sendOrder(aStartOrder({ replicaId: 'image-1', spec: { image: 'nginx' } }));
  await world.clock.advance(10);
}

async function aWorld(meter: RecordingMeter): Promise<AgentTestBed> {
  const world = new AgentTestBed();
  world.meter = meter;
  world.stats = new FakeStats(world.clock);
  await world.start();
  world.coordinator.sendOrder(aStartOrder());
  await settle();
  return world;
}

describe('metrics of an agent', () => {
  it.each(rows)('change with the agent: $metric $labels', async ({ metric, labels = {}, act }) => {
    const meter = new RecordingMeter();
    const world = await aWorld(meter);
    const before = await meter.read(metric, labels);
    await act(world);
    await settle();
    expect(await meter.read(metric, labels)).toBeGreaterThan(before);
  });

  it('set cloudless_agent_session_connected to 0 when the session ends', async () => {
    const meter = new RecordingMeter();
    const world = await aWorld(meter);
    expect(await meter.read('cloudless_agent_session_connected')).toBe(1);
    world.coordinator.dropConnections();
    await settle();
    expect(await meter.read('cloudless_agent_session_connected')).toBe(0);
  });

  it('remove the series of a container when it exits, and start new ones with the next container', async () => {
    const meter = new RecordingMeter();
    const world = await aWorld(meter);
    await world.clock.advance(3_000);
    const [first] = meter.labelsOf('cloudless_container_cpu_seconds_total');
    expect(first).toEqual({
      namespace: 'default',
      workload: 'web',
      replica: 'web-1',
      container: idOf(world),
    });
    await crashed(world);
    await world.clock.advance(3_000);
    const shown = [...meter.specs.keys()].filter((name) => name.startsWith('cloudless_container_'));
    const containers = new Set(
      shown.flatMap((name) => meter.labelsOf(name).map(({ container: id }) => id)),
    );
    expect([...containers]).toEqual([idOf(world)]);
    expect(idOf(world)).not.toBe(first?.['container']);
    stopped(world);
    await world.clock.advance(60_000);
    expect(shown.flatMap((name) => meter.labelsOf(name))).toEqual([]);
  });

  it('have a row in the table of this spec, each', async () => {
    const meter = new RecordingMeter();
    await aWorld(meter);
    const shown = ['cloudless_agent_session_connected', ...rows.map(({ metric }) => metric)];
    expect([...meter.specs.keys()].filter((name) => !shown.includes(name))).toEqual([]);
  });
});
