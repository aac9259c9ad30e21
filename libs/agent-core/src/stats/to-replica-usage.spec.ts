import type { ContainerStatistics } from './stats-sampler.js';
import { toReplicaUsages } from './to-replica-usage.js';

it('reports the newest usage of each replica, without what was not measured', () => {
  const container = (replicaId: string, fields: object): ContainerStatistics =>
    ({ owner: { replicaId }, ...fields }) as unknown as ContainerStatistics;
  expect(
    toReplicaUsages([
      container('a', {
        sample: { memory: { usageBytes: 9, workingSetBytes: 5 } },
        rates: { cpuMillis: 12.6, intervalMs: 1 },
      }),
      container('b', { sample: { memory: { usageBytes: 9 } } }),
      container('c', {}),
    ]),
  ).toMatchObject([
    { replicaId: 'a', cpuMillis: 13, memoryBytes: 5n },
    { replicaId: 'b', memoryBytes: 9n },
  ]);
});
