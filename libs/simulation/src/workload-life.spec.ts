import { WorkloadStatus_Phase as Phase } from '@cloudless/api';
import { TestCluster } from './index.js';

async function threeZones(): Promise<TestCluster> {
  const cluster = await TestCluster.start();
  for (const zone of ['a', 'b', 'c']) await cluster.addNode(`node-${zone}`, { zone: `zone-${zone}` });
  return cluster;
}

const read = (cluster: TestCluster, name = 'web') => cluster.until(() => cluster.client.getWorkload({ name }));

const zonesOf = (workload: Awaited<ReturnType<typeof read>>) => {
  const counts: Record<string, number> = {};
  for (const { zone } of workload.status!.replicas) counts[zone] = (counts[zone] ?? 0) + 1;
  return Object.values(counts).sort();
};

describe('the life of a workload', () => {
  it('is created, spread over the zones, and becomes RUNNING', async () => {
    const cluster = await threeZones();
    await cluster.until(() => cluster.client.createWorkload({ name: 'web', spec: { command: ['serve'], replicas: 5 } }));
    await cluster.advance(200);
    const workload = await read(cluster);
    expect(workload.status).toMatchObject({ phase: Phase.RUNNING, readyReplicas: 5, updatedReplicas: 5, reason: '' });
    expect(zonesOf(workload)).toEqual([1, 2, 2]);
  });
});
