import { toNodeId } from '@cloudless/base';
import { AVAILABILITY_ORDER, createCluster } from '@cloudless/scheduler';
import { summarizeCapacity } from './capacity-summary.js';

describe('summarizeCapacity', () => {
  it.each(AVAILABILITY_ORDER)('leaves out a node that is %s', (condition) => {
    const cluster = createCluster();
    const capacity = { cpuMillis: 1_000, memoryBytes: 1_024 };
    cluster.upsertNode({ id: toNodeId('open'), capacity, zone: 'a' });
    cluster.upsertNode({
      ...{ id: toNodeId('closed'), capacity, zone: 'a' },
      availability: { [condition]: true },
    });
    expect(summarizeCapacity(cluster, ['open', 'closed']).total?.nodes).toBe(1);
  });
});
