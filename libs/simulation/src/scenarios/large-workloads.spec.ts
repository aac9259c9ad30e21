import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

const tiny = { resources: { requests: { cpuMillis: 1, memoryBytes: 1n } } };

describe('large workload', () => {
  it('scales to a thousand replicas and back to none', async () => {
    const cluster = await startCluster(10);
    await createWeb(cluster, { ...tiny, replicas: 0 });
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 1_000 }));
    await cluster.advance(2_000, 100);
    expect((await readWeb(cluster)).status).toMatchObject({
      readyReplicas: 1_000,
      totalReplicas: 1_000,
    });
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 0 }));
    await cluster.advance(2_000, 100);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 0, totalReplicas: 0 });
  });

  it('replaces a hundred replicas that fail at the same moment', async () => {
    const cluster = await startCluster(10);
    await createWeb(cluster, { ...tiny, replicas: 100 });
    await cluster.advance(1_000, 100);
    for (const agent of cluster.agents.values()) {
      for (const id of agent.replicas.keys())
        agent.change(id, { phase: Phase.FAILED, ready: false, reason: 'exit code 1' });
    }
    await cluster.advance(1_000, 100);
    expect((await readWeb(cluster)).status).toMatchObject({
      readyReplicas: 100,
      totalReplicas: 100,
    });
  });

  it('reports the reason for each of 120 replicas that wait for a node', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { ...tiny, replicas: 120, placement: { zones: ['nowhere'] } });
    await cluster.advance(1_000, 100);
    const reasons = (await readWeb(cluster)).status?.replicas.map(({ reason }) => reason);
    expect(new Set(reasons)).toEqual(new Set(['no node fits: not in zone nowhere: 1 of 1 nodes']));
    expect(reasons).toHaveLength(120);
  });
});
