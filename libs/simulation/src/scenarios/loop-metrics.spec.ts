import type { WorkloadRecord } from '@cloudless/api/store';
import { RecordingMeter } from '@cloudless/base/testing';
import type { Stored } from '@cloudless/cluster-state';
import type { TestCluster } from '../index.js';
import { SimulatedProxy } from '../test-cluster/simulated-proxy.js';
import { startCluster, createWeb } from '../test-cluster/web-workload.js';

interface Row {
  readonly metric: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** Increases the metric. */
  readonly perform: (cluster: TestCluster) => Promise<unknown>;
  readonly nodes?: number;
}

const silenceNode = async (cluster: TestCluster, nodes: number): Promise<void> => {
  for (const agent of [...cluster.agents.values()].slice(0, nodes)) agent.sendsPings = false;
  await cluster.advance(6_000, 50);
};
const web = async (cluster: TestCluster, spec: object = {}): Promise<void> => {
  await createWeb(cluster, spec);
  await cluster.advance(1_500, 50);
};
/** Makes the store report a revision that the view does not show. */
const raiseStoreRevision = async (cluster: TestCluster): Promise<void> => {
  const { revision } = cluster.store;
  cluster.store.revision = async () => (await revision.call(cluster.store)) + 3n;
};
/** Commits a transaction that requires a workload as it was before an update. */
const conflict = async (cluster: TestCluster): Promise<void> => {
  const [{ value, ...read }] = [...cluster.state.view().workloads()] as [Stored<WorkloadRecord>];
  await cluster.complete(() =>
    cluster.client.updateWorkload({ name: 'web', spec: { command: ['other'] } }),
  );
  const transaction = cluster.state.transaction().require('workload', value.uid, read);
  await expect(
    cluster.complete(() => cluster.state.commit(transaction.put('workload', value.uid, value))),
  ).rejects.toMatchObject({ kind: 'conflict' });
};

const rows: readonly Row[] = [
  {
    metric: 'cloudless_loop_passes_total',
    labels: { loop: 'workload', result: 'again' },
    perform: web,
  },
  {
    metric: 'cloudless_loop_passes_total',
    labels: { loop: 'placement', result: 'done' },
    perform: web,
  },
  {
    metric: 'cloudless_loop_passes_total',
    labels: { loop: 'reports', result: 'again' },
    perform: web,
  },
  {
    metric: 'cloudless_loop_passes_total',
    labels: { loop: 'node', result: 'again' },
    perform: (cluster) => silenceNode(cluster, 1),
  },
  {
    metric: 'cloudless_loop_passes_total',
    labels: { loop: 'janitor', result: 'after' },
    perform: (cluster) => cluster.advance(61_000, 500),
  },
  {
    metric: 'cloudless_agents_away',
    perform: async (cluster) => {
      cluster.agents.get('node-1')!.leave();
      await cluster.advance(1_000, 50);
    },
  },
  { metric: 'cloudless_loop_pass_duration_seconds', labels: { loop: 'workload' }, perform: web },
  { metric: 'cloudless_placements_total', labels: { result: 'placed' }, perform: web },
  {
    metric: 'cloudless_placements_total',
    labels: { result: 'unplaced' },
    perform: (cluster) => web(cluster, { resources: { requests: { cpuMillis: 99_000 } } }),
  },
  {
    metric: 'cloudless_loop_passes_total',
    labels: { loop: 'preemption', result: 'done' },
    perform: preempt,
  },
  { metric: 'cloudless_preempted_replicas_total', perform: preempt },
  { metric: 'cloudless_state_commits_total', labels: { result: 'ok' }, perform: web },
  {
    metric: 'cloudless_state_commits_total',
    labels: { result: 'conflict' },
    perform: async (cluster) => web(cluster).then(() => conflict(cluster)),
  },
  { metric: 'cloudless_state_commit_duration_seconds', perform: web },
  { metric: 'cloudless_state_revision', perform: web },
  { metric: 'cloudless_state_written_bytes_total', perform: web },
  {
    metric: 'cloudless_state_records_decoded_total',
    perform: async (cluster) => {
      await web(cluster);
      await cluster.restartCoordinator();
    },
  },
  { metric: 'cloudless_state_view_lag_revisions', perform: raiseStoreRevision },
  { metric: 'cloudless_node_losses_total', perform: (cluster) => silenceNode(cluster, 1) },
  { metric: 'cloudless_replacement_held', perform: (cluster) => silenceNode(cluster, 4), nodes: 4 },
  {
    metric: 'cloudless_nodes_quarantined',
    perform: async (cluster) => {
      for (let loss = 0; loss < 3; loss += 1) {
        cluster.agents.get('node-1')!.disconnect();
        await cluster.advance(4_000, 100);
        await cluster.reconnect('node-1');
        await cluster.advance(200);
      }
    },
  },
  {
    metric: 'cloudless_sessions',
    labels: { admitted: 'true' },
    perform: (cluster) => cluster.addNode('node-9'),
  },
  {
    metric: 'cloudless_orders_sent_total',
    labels: { kind: 'start', again: 'false' },
    perform: web,
  },
  {
    metric: 'cloudless_orders_sent_total',
    labels: { kind: 'start', again: 'true' },
    perform: lossyOrder,
  },
  { metric: 'cloudless_orders_acknowledged_total', perform: web },
  { metric: 'cloudless_order_acknowledge_duration_seconds', perform: web },
  { metric: 'cloudless_replica_reports_total', perform: web },
  { metric: 'cloudless_network_feed_streams', perform: (cluster) => exposeWeb(cluster) },
  {
    metric: 'cloudless_network_feed_streams_behind',
    perform: (cluster) => exposeWeb(cluster, { acknowledges: false }),
  },
  { metric: 'cloudless_network_feed_removals_waiting', perform: stopBeforeAcknowledgement },
  { metric: 'cloudless_network_feed_updates_total', perform: (cluster) => exposeWeb(cluster) },
  { metric: 'cloudless_network_feed_sent_bytes_total', perform: (cluster) => exposeWeb(cluster) },
  {
    metric: 'cloudless_network_feed_resets_total',
    labels: { cause: 'start' },
    perform: (cluster) => exposeWeb(cluster),
  },
];

/** Follows the feed as the proxy of node-1 while a workload with a service is created. */
async function exposeWeb(cluster: TestCluster, { acknowledges = true } = {}): Promise<void> {
  const proxy = new SimulatedProxy('node-1');
  proxy.acknowledges = acknowledges;
  proxy.connect(cluster);
  await cluster.advance(500);
  const ports = [{ name: 'http', containerPort: 80 }];
  await web(cluster, { ports, expose: [{ name: 'http', port: 80 }] });
}

/** Scales in while the agents do not receive the stop orders and the proxy does not report. */
async function stopBeforeAcknowledgement(cluster: TestCluster): Promise<void> {
  await exposeWeb(cluster, { acknowledges: false });
  for (const agent of cluster.agents.values()) agent.dropsOrders = 1;
  await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 1 }));
  await cluster.advance(500, 50);
}

/** Fills both nodes, then creates a workload that may preempt. */
async function preempt(cluster: TestCluster): Promise<void> {
  const requests = { cpuMillis: 4_000 };
  await web(cluster, { rollout: { maxUnavailable: 2 }, replicas: 2, resources: { requests } });
  await cluster.complete(() =>
    cluster.client.createWorkload({
      name: 'high',
      spec: { command: ['serve'], replicas: 1, priority: 200, resources: { requests } },
    }),
  );
  await cluster.advance(5_000);
}

async function lossyOrder(cluster: TestCluster): Promise<void> {
  for (const agent of cluster.agents.values()) agent.dropsOrders = 1;
  await web(cluster);
  await cluster.advance(3_000);
}

/**
 * Metrics whose specs need full control of time: work-queue.spec of base, node-metrics.spec of
 * controllers.
 */
const TESTED_ELSEWHERE = [
  'cloudless_loop_queue_depth',
  'cloudless_loop_oldest_wait_seconds',
  'cloudless_loop_retrying',
  'cloudless_lease_sweep_lag_seconds',
  'cloudless_agents_slow',
];

describe('loop metrics', () => {
  it.each(rows)(
    'increase when their loop runs: $metric $labels',
    async ({ metric, labels = {}, perform, nodes = 2 }) => {
      const meter = new RecordingMeter();
      const cluster = await startCluster(nodes, { meter });
      const before = await meter.read(metric, labels);
      await perform(cluster);
      expect(await meter.read(metric, labels)).toBeGreaterThan(before);
    },
  );

  it('all have a row here or a spec elsewhere', async () => {
    const meter = new RecordingMeter();
    await startCluster(1, { meter });
    expect(
      [...meter.specs.keys()].filter((name) => !rows.some(({ metric }) => metric === name)).sort(),
    ).toEqual(TESTED_ELSEWHERE.sort());
  });
});
