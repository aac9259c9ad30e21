import type { Workload } from '@cloudless/api';
import { TestCluster, type TestClusterOptions } from './test-cluster.js';

/** Nodes `node-1` … of a fresh cluster, in three zones by turns. */
export async function clusterOf(
  nodes: number,
  options: TestClusterOptions = {},
): Promise<TestCluster> {
  const cluster = await TestCluster.start(options);
  for (let number = 1; number <= nodes; number += 1)
    await cluster.addNode(`node-${number}`, { zone: `zone-${number % 3}` });
  return cluster;
}

/** Creates workload `web` of three replicas, unless the spec says otherwise. */
export function createWeb(cluster: TestCluster, spec: object = {}): Promise<Workload> {
  return cluster.until(() =>
    cluster.client.createWorkload({
      name: 'web',
      spec: { command: ['serve'], replicas: 3, ...spec },
    }),
  );
}

/** The workload as the API shows it. */
export function readWeb(cluster: TestCluster): Promise<Workload> {
  return cluster.until(() => cluster.client.getWorkload({ name: 'web' }));
}
