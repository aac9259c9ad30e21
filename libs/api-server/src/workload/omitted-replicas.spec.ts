import { ReplicaStatus_Phase as Phase, WatchWorkloadsResponse_Kind as Kind } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import { createReplicaRecord } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';

/** Replicas of one commit. */
const BATCH = 90;

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
});
afterEach(() => bed.close());

/** Writes replicas of the workload `web-a` that were lost with node-1. */
async function putLostReplicas(count: number): Promise<void> {
  await bed.putReplica('a-1', { lost: true });
  for (let from = 2; from <= count; from += BATCH) {
    const transaction = bed.state.transaction();
    for (let number = from; number < Math.min(count + 1, from + BATCH); number += 1)
      transaction.createReplica(
        createReplicaRecord({
          ...{ id: `a-${number}`, uid: 'a', sequence: BigInt(number), version: 1 },
          ...{ nodeId: 'node-1', desiredRunning: true, phase: Phase.RUNNING, lost: true },
        }),
      );
    await bed.state.commit(transaction);
  }
}

const count = ({ status }: Workload) => ({
  listed: status?.replicas.length,
  last: status?.replicas.at(-1)?.id,
  omitted: status?.omittedReplicas,
});

describe.each([
  { replicas: 999, listed: 999, omitted: 0 },
  { replicas: 1_000, listed: 1_000, omitted: 0 },
  { replicas: 1_001, listed: 1_000, omitted: 1 },
])('of $replicas replicas', ({ replicas, listed, omitted }) => {
  const expected = { listed, last: `a-${listed}`, omitted };

  it(`a list of the workloads on a node has the oldest ${listed}`, async () => {
    await putLostReplicas(replicas);
    const { workloads } = await bed.client.listWorkloads({
      nodeId: 'node-1',
      includeReplicas: true,
    });
    expect(workloads.map(count)).toEqual([expected]);
  });

  it(`the item of a deleted workload has the oldest ${listed} that may still run`, async () => {
    await putLostReplicas(replicas);
    for await (const { kind, workload } of bed.client.watchWorkloads({})) {
      if (kind === Kind.SYNCED)
        await bed.state.commit(bed.state.transaction().delete('workload', 'a'));
      if (kind !== Kind.DELETED) continue;
      expect(workload && count(workload)).toEqual(expected);
      return;
    }
  });
});
