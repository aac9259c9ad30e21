import fc from 'fast-check';
import { toReplicaKeyId, toVersionKeyId } from '@cloudless/cluster-state';
import { NO_RESOURCES } from '@cloudless/scheduler';
import { TestBed } from '../testing/test-bed.js';
import { NodeAllocations, sumAllocated } from './node-allocations.js';

const NODES = ['node-1', 'node-2'];
const REPLICAS = 6;

const arbChange = fc.record({
  sequence: fc.integer({ min: 1, max: REPLICAS }),
  kind: fc.constantFrom('change', 'change', 'change', 'delete', 'deleteVersion'),
  fields: fc.record({
    nodeId: fc.constantFrom('', ...NODES),
    phase: fc.integer({ min: 0, max: 7 }),
    lost: fc.boolean(),
    version: fc.integer({ min: 1, max: 2 }),
  }),
});

async function openBed(): Promise<TestBed> {
  const bed = await TestBed.open({ nodes: NODES });
  await bed.createWorkload({
    resources: {
      requests: {
        ...{ cpuMillis: 100, memoryBytes: 64n * 1024n ** 2n },
        ...{ storageBytes: 1024n ** 3n, bandwidthBps: 1_000n, custom: { license: 1n } },
      },
    },
  });
  await bed.updateWorkload({ resources: { requests: { cpuMillis: 250 } } });
  await bed.addReplicas(REPLICAS, (index) => ({
    nodeId: NODES[index % 2] ?? '',
    version: (index % 2) + 1,
  }));
  return bed;
}

describe('NodeAllocations', () => {
  it('has the sums of a walk over the replicas of each node after any changes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(arbChange, { maxLength: 20 }), async (changes) => {
        const bed = await openBed();
        const allocations = bed.use(new NodeAllocations(bed.state));
        for (const { sequence, kind, fields } of changes) {
          const replica = bed.state.view().replica(`web-${sequence}`);
          if (kind === 'deleteVersion')
            await bed.state.commit(
              bed.state.transaction().delete('version', toVersionKeyId('web', fields.version)),
            );
          else if (replica !== undefined && kind === 'delete')
            await bed.state.commit(
              bed.state.transaction().delete('replica', toReplicaKeyId('web', BigInt(sequence))),
            );
          else if (replica !== undefined) await bed.changeReplica(`web-${sequence}`, fields);
          for (const nodeId of NODES)
            expect(allocations.getAllocated(nodeId)).toEqual(
              sumAllocated(bed.state.view(), nodeId),
            );
        }
        await bed.close();
      }),
      { numRuns: 40 },
    );
  });

  it('walks the replicas of a node at the first read only', async () => {
    const bed = await openBed();
    const allocations = bed.use(new NodeAllocations(bed.state));
    for (let round = 1; round <= 20; round += 1) {
      await bed.changeReplica('web-1', { nodeId: 'node-2', restarts: round });
      for (const nodeId of NODES) allocations.getAllocated(nodeId);
    }
    expect(allocations.walkedReplicas).toBe(REPLICAS);
    await bed.close();
  });

  it('has no allocation for an unknown node', async () => {
    const bed = await openBed();
    const allocations = bed.use(new NodeAllocations(bed.state));
    expect(allocations.getAllocated('node-9')).toEqual({
      ...NO_RESOURCES,
      replicas: 0,
    });
    await bed.close();
  });
});
