import { create } from '@bufbuild/protobuf';
import { createClient } from '@connectrpc/connect';
import {
  NetworkService,
  ReplicaStatus_Phase as Phase,
  Rollout_Promotion as Promotion,
} from '@cloudless/api';
import { ServiceRecordSchema } from '@cloudless/api/store';
import type { TestCluster } from '../index.js';
import { SimulatedProxy } from '../test-cluster/simulated-proxy.js';
import { createWeb, startCluster } from '../test-cluster/web-workload.js';

/** Time after a fault within which the data of every proxy must be right again, milliseconds. */
const CONVERGENCE_MS = 5_000;

describe('network proxies', () => {
  let cluster: TestCluster;
  let proxies: readonly SimulatedProxy[];

  beforeEach(async () => {
    cluster = await startCluster(3);
    proxies = ['node-1', 'node-2', 'node-3'].map((nodeId) => new SimulatedProxy(nodeId));
    await createWeb(cluster, { ports: [{ name: 'http', containerPort: 80 }] });
    const service = create(ServiceRecordSchema, {
      ...{ namespace: 'default', name: 'web', uid: 'service-1' },
      spec: { workload: 'web', ports: [{ name: 'http', port: 80 }] },
    });
    const transaction = cluster.state.transaction().put('service', 'default/web', service);
    await cluster.complete(() => cluster.state.commitObserved(transaction));
    for (const proxy of proxies) proxy.connect(cluster);
    await cluster.advance(CONVERGENCE_MS);
  });

  afterEach(async () => {
    for (const proxy of proxies) proxy.disconnect();
    await cluster.stopCoordinator();
  });

  /** Ids of the replicas that should receive new connections according to the records. */
  function listServing(): readonly string[] {
    return [...cluster.state.view().replicas()]
      .map(({ value }) => value)
      .filter(({ ready, desiredRunning, lost, phase }) => {
        return ready && desiredRunning && !lost && phase === Phase.RUNNING;
      })
      .map(({ id }) => id)
      .sort();
  }

  /**
   * Advances the time. No connected proxy may choose a replica whose stop was confirmed 200 ms ago.
   */
  async function advanceChecked(durationMs: number): Promise<void> {
    let stoppedBefore: ReadonlySet<string> = new Set();
    for (let passed = 0; passed < durationMs; passed += 200) {
      await cluster.advance(200);
      for (const proxy of proxies)
        expect(proxy.ready.filter((id) => stoppedBefore.has(id))).toEqual([]);
      stoppedBefore = new Set(
        [...cluster.state.view().replicas()].flatMap(({ value }) =>
          value.phase >= Phase.STOPPED ? [value.id] : [],
        ),
      );
    }
  }

  const expectConverged = (): void => {
    for (const proxy of proxies) expect(proxy.ready).toEqual(listServing());
  };

  it('choose no replica whose stop was confirmed during a rolling update', async () => {
    expect(listServing()).toHaveLength(3);
    expectConverged();
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'web',
        spec: { command: ['new'] },
        updateMask: { paths: ['command'] },
      }),
    );
    await advanceChecked(20_000);
    expectConverged();
    const versions = proxies.flatMap(({ endpoints }) => [...endpoints.values()]);
    expect(new Set(versions.map(({ version }) => version))).toEqual(new Set([2]));
  });

  it('have the weights of a canary step that ListEndpoints shows', async () => {
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'web',
        spec: {
          command: ['new'],
          rollout: { steps: [{ replicas: 1, promotion: Promotion.MANUAL, weightPercent: 10 }] },
        },
        updateMask: { paths: ['command', 'rollout.steps'] },
      }),
    );
    await cluster.advance(20_000);
    const client = createClient(NetworkService, cluster.transport);
    const { endpoints } = await cluster.complete(() => client.listEndpoints({ service: 'web' }));
    const share = (version: number): number =>
      endpoints
        .filter((endpoint) => endpoint.version === version)
        .reduce((sum, { weight = 0 }) => sum + weight, 0);
    expect(share(2) / (share(1) + share(2))).toBeCloseTo(0.1, 3);
    const shown = endpoints.map(({ replicaId, weight }) => [replicaId, weight]).sort();
    for (const proxy of proxies)
      expect(
        [...proxy.endpoints.values()].map(({ replicaId, weight }) => [replicaId, weight]).sort(),
      ).toEqual(shown);
  });

  it('leave a second workload of the service the share of its endpoints during a canary', async () => {
    const service = create(ServiceRecordSchema, {
      ...{ namespace: 'default', name: 'both', uid: 'service-2' },
      spec: { selector: { tier: 'front' }, ports: [{ name: 'http', port: 80 }] },
    });
    const transaction = cluster.state.transaction().put('service', 'default/both', service);
    await cluster.complete(() => cluster.state.commitObserved(transaction));
    const spec = { labels: { tier: 'front' }, ports: [{ name: 'http', containerPort: 80 }] };
    for (const name of ['steady', 'changing'])
      await cluster.complete(() =>
        cluster.client.createWorkload({
          name,
          spec: { ...spec, command: ['serve'], replicas: name === 'steady' ? 2 : 6 },
        }),
      );
    await cluster.advance(10_000);
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'changing',
        spec: {
          command: ['new'],
          rollout: { steps: [{ replicas: 3, promotion: Promotion.MANUAL, weightPercent: 10 }] },
        },
        updateMask: { paths: ['command', 'rollout.steps'] },
      }),
    );
    await cluster.advance(30_000);
    for (const proxy of proxies) {
      const shares = proxy.measureShares('default/both', ({ workload, version }) => {
        return `${workload} ${version}`;
      });
      expect(shares.get('steady 1')).toBeCloseTo(0.25, 2);
      expect(shares.get('changing 1')).toBeCloseTo(0.75 * 0.9, 2);
      expect(shares.get('changing 2')).toBeCloseTo(0.75 * 0.1, 2);
    }
  });

  it('are right again within 5 s after a restart of the coordinator', async () => {
    await cluster.restartCoordinator();
    for (const nodeId of cluster.agents.keys()) await cluster.reconnect(nodeId);
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 1 }));
    for (const proxy of proxies) proxy.connect(cluster);
    await cluster.advance(CONVERGENCE_MS);
    expect(listServing()).toHaveLength(1);
    expectConverged();
  });

  it('continue with what they missed while they were disconnected', async () => {
    for (const proxy of proxies) proxy.disconnect();
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 2 }));
    await cluster.advance(CONVERGENCE_MS);
    for (const proxy of proxies) proxy.connect(cluster);
    await cluster.advance(CONVERGENCE_MS);
    expect(listServing()).toHaveLength(2);
    expectConverged();
  });
});
