import type { Workload } from '@cloudless/api';
import { TestCluster, type TestClusterOptions } from './test-cluster.js';

/**
 * Starts a cluster with the nodes `node-1`, `node-2`, … in three zones in turn.
 * @param nodes - Number of nodes.
 * @param hello - Fields of the Hello of each agent.
 */
export async function startCluster(
  nodes: number,
  options: TestClusterOptions = {},
  hello: Parameters<TestCluster['addNode']>[1] = {},
): Promise<TestCluster> {
  const cluster = await TestCluster.start(options);
  for (let number = 1; number <= nodes; number += 1)
    await cluster.addNode(`node-${number}`, { zone: `zone-${number % 3}`, ...hello });
  return cluster;
}

/** Creates workload `web` with three replicas; `spec` overrides fields. */
export function createWeb(cluster: TestCluster, spec: object = {}): Promise<Workload> {
  return cluster.complete(() =>
    cluster.client.createWorkload({
      name: 'web',
      spec: { command: ['serve'], replicas: 3, ...spec },
    }),
  );
}

/** Reads workload `web` from the API. */
export function readWeb(cluster: TestCluster): Promise<Workload> {
  return cluster.complete(() => cluster.client.getWorkload({ name: 'web' }));
}
