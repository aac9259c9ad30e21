import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { QUICK, RealCluster, SERVER_COMMAND } from './support/cluster.js';
import { repository } from './support/processes.js';
import { TraceReceiver } from './support/trace-receiver.js';

/** Trace id of the caller. */
const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736';

let cluster: RealCluster;
const receiver = new TraceReceiver();
beforeAll(async () => {
  process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = await receiver.listen();
  cluster = await RealCluster.start([]);
  await cluster.startAgent('agent-1', 'zone-a', ['--ops-listen', '127.0.0.1:0']);
});
afterAll(async () => {
  delete process.env['OTEL_EXPORTER_OTLP_ENDPOINT'];
  await cluster.stop();
  receiver.close();
});

const readMetrics = async (opsUrl: string): Promise<string> =>
  (await fetch(`${opsUrl}/metrics`)).text();
const getAgentOpsUrl = async (): Promise<string> =>
  String(
    (await cluster.requireAgent('agent-1').waitForLog('agent started, connecting to coordinators'))[
      'opsUrl'
    ],
  );

/** Returns the sum of all series of a metric whose labels contain a text. */
function sumMetric(metrics: string, name: string, labels = ''): number {
  const lines = metrics
    .split('\n')
    .filter((line) => new RegExp(`^${name}[{ ]`).test(line) && line.includes(labels));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

/** Returns the sorted names of all Cloudless metrics. */
function listMetricNames(metrics: string): readonly string[] {
  return [...metrics.matchAll(/^# TYPE (cloudless_\w+) \w+$/gm)]
    .map(([, name]) => name ?? '')
    .sort();
}

async function runWeb(): Promise<void> {
  const headers = { traceparent: `00-${TRACE_ID}-00f067aa0ba902b7-01` };
  const spec = {
    command: SERVER_COMMAND,
    ports: [{ name: 'http', containerPort: 80 }],
    replicas: 2,
    ...QUICK,
  };
  await cluster.client.createWorkload({ name: 'web', spec, requestId: 'create-web' }, { headers });
  await cluster.waitForWorkload('web', ({ status }) => status?.readyReplicas === 2);
}

describe('observability', () => {
  it('includes metrics of coordinator and agent that change with their work', async () => {
    const opsUrl = await getAgentOpsUrl();
    const [coordinatorBefore, agentBefore] = [
      await readMetrics(cluster.opsUrl),
      await readMetrics(opsUrl),
    ];
    await runWeb();
    const [coordinator, agent] = [await readMetrics(cluster.opsUrl), await readMetrics(opsUrl)];
    const changedMetrics: readonly (readonly [string, string, string, string?])[] = [
      [coordinatorBefore, coordinator, 'cloudless_rpc_calls_total', 'method="CreateWorkload"'],
      [
        coordinatorBefore,
        coordinator,
        'cloudless_rpc_duration_seconds_count',
        'method="CreateWorkload"',
      ],
      [coordinatorBefore, coordinator, 'cloudless_workloads'],
      [coordinatorBefore, coordinator, 'cloudless_replicas', 'state="ready"'],
      [coordinatorBefore, coordinator, 'cloudless_state_revision'],
      [coordinatorBefore, coordinator, 'cloudless_orders_acknowledged_total'],
      [agentBefore, agent, 'cloudless_agent_container_starts_total', 'result="ok"'],
      [agentBefore, agent, 'cloudless_agent_replicas', 'ready="true"'],
    ];
    for (const [before, after, name, labels] of changedMetrics) {
      expect([name, sumMetric(after, name, labels) > sumMetric(before, name, labels)]).toEqual([
        name,
        true,
      ]);
    }
    for (const name of [
      'cloudless_store_size_bytes',
      'cloudless_store_disk_free_bytes',
      'cloudless_store_disk_size_bytes',
    ]) {
      expect([name, sumMetric(coordinator, name) > 0]).toEqual([name, true]);
    }
    expect(sumMetric(coordinator, 'cloudless_nodes', 'alive="true"')).toBe(1);
    expect(sumMetric(coordinator, 'cloudless_sessions', 'admitted="true"')).toBe(1);
    expect(sumMetric(coordinator, 'cloudless_rpc_open_calls', 'method="Session"')).toBe(1);
    for (const metrics of [coordinator, agent]) {
      expect(sumMetric(metrics, 'cloudless_event_loop_lag_seconds')).toBeGreaterThan(0);
      expect(sumMetric(metrics, 'cloudless_metrics_collect_failures_total')).toBe(0);
      expect(sumMetric(metrics, 'cloudless_metrics_dropped_total')).toBe(0);
    }
  });

  /** Metrics that a coordinator has only with TLS, which this cluster does not use. */
  const TLS_METRICS = [
    'cloudless_agent_replica_certificates_total',
    'cloudless_calls_refused_total',
    'cloudless_certificate_expiry_days',
    'cloudless_enrolments_total',
    'cloudless_identity_files_complete',
    'cloudless_join_token_refusals_total',
    'cloudless_refused_calls_unrecorded_total',
  ];

  /** Metrics that only one of several coordinators has. */
  const ELECTION_METRICS = [
    'cloudless_leadership_changes_total',
    'cloudless_leadership_is_leader',
    'cloudless_leadership_renewal_duration_seconds',
    'cloudless_leadership_renewals_total',
    'cloudless_state_view_differences_total',
  ];

  /** Metrics of the network proxies, which this cluster has not. The spec of libs/mesh has them. */
  const isOfProxy = (name = ''): boolean =>
    name.startsWith('cloudless_network_') && !name.startsWith('cloudless_network_feed_');

  it('includes exactly the metrics that docs/operating/monitoring.md lists', async () => {
    const served = new Set([
      ...listMetricNames(await readMetrics(cluster.opsUrl)),
      ...listMetricNames(await readMetrics(await getAgentOpsUrl())),
    ]);
    const page = readFileSync(join(repository, 'docs/operating/monitoring.md'), 'utf8');
    const documented = [...page.matchAll(/^\| `(cloudless_\w+)`/gm)].map(([, name]) => name);
    const listed = documented.filter((name) => !isOfProxy(name));
    expect(listed.sort()).toEqual([...served, ...TLS_METRICS, ...ELECTION_METRICS].sort());
  });

  it('includes a trace from the caller through the work that the call started', async () => {
    await receiver.waitForTexts(
      Buffer.from(TRACE_ID, 'hex'),
      'CreateWorkload',
      'commit',
      'reconcile workload',
      'place replicas',
      'order start',
    );
  });

  it('includes audit records and the causes of events in cloudlessctl', async () => {
    const audit = JSON.parse((await cluster.runCtl('events', '--audit', '-o', 'json')).stdout) as {
      events: Record<string, unknown>[];
    };
    expect(audit.events.find(({ reason }) => reason === 'CreateWorkload')).toMatchObject({
      requestId: 'create-web',
      workload: 'web',
      audit: {
        principal: 'anonymous@loopback',
        address: '127.0.0.1',
        result: 'ok',
        traceId: TRACE_ID,
      },
    });
    const { events } = JSON.parse((await cluster.runCtl('events', '-o', 'json')).stdout) as {
      events: Record<string, unknown>[];
    };
    expect(events.some(({ category }) => category === 'AUDIT')).toBe(false);
    const placed = events.find(({ reason }) => reason === 'ReplicasPlaced');
    const causes = await cluster.runCtl('events', '--why', String(placed?.['id']));
    const outline = causes.stdout
      .split('\n')
      .map((line) => /(why|request): |\b(?:[A-Z][a-z]+){2,}\b/.exec(line)?.[0] ?? '');
    expect(outline).toEqual([
      ...[
        'CreateWorkload',
        'request: ',
        'WorkloadCreated',
        'ReplicasCreated',
        'why: ',
        'ReplicasPlaced',
        'why: ',
      ],
      ...['ReplicaReady', 'ReplicaReady', ''],
    ]);
  });
});
