import { RecordingMeter } from '@cloudless/base/testing';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

const REPLICAS = 500;
const AGENTS = 50;
/** Virtual duration of a commit, so that work arrives while one is in progress. */
const COMMIT_MS = 2;
const tiny = { resources: { requests: { cpuMillis: 1, memoryBytes: 1n } } };

/** Starts 500 replicas on 50 agents, and counts what that takes. */
async function countWork() {
  const meter = new RecordingMeter();
  let commitMs = 0;
  const cluster = await startCluster(AGENTS, { meter, commitDelayMs: () => commitMs });
  commitMs = COMMIT_MS;
  const commitsBefore = cluster.attemptedTransactions;
  await createWeb(cluster, { ...tiny, replicas: REPLICAS });
  await cluster.advance(1_500, 50);
  expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: REPLICAS });
  const commits = cluster.attemptedTransactions - commitsBefore;
  const read = (name: string, labels = {}) => meter.read(name, labels);
  const sent = { kind: 'start', again: 'false' };
  return {
    commits: commits / REPLICAS,
    orders: (await read('cloudless_orders_sent_total', sent)) / REPLICAS,
    repeatedOrders: await read('cloudless_orders_sent_total', { ...sent, again: 'true' }),
    reports: (await read('cloudless_replica_reports_total')) / REPLICAS,
    workloadPasses: await read('cloudless_loop_passes_total', { loop: 'workload' }),
    readyEvents: cluster.state
      .view()
      .events()
      .filter(({ reason }) => reason === 'ReplicaReady').length,
    placements: (await read('cloudless_placements_total', { result: 'placed' })) / REPLICAS,
  };
}

it('500 replicas on 50 agents take one order and one report each, and few commits', async () => {
  const work = await countWork();
  expect(work).toMatchObject({ orders: 1, repeatedOrders: 0, placements: 1 });
  expect(work.reports).toBeLessThanOrEqual(2);
  // Before reports of different nodes shared commits: 1.05.
  expect(work.commits).toBeLessThanOrEqual(0.12);
  // A pass looks at every replica: a start takes a few, however many replicas it has.
  expect(work.workloadPasses).toBeLessThanOrEqual(12);
  // One event names the replicas that become ready together: 500 otherwise.
  expect(work.readyEvents).toBeLessThanOrEqual(60);
});
