import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

const MAX_INT64 = 2n ** 63n - 1n;
const instanceId = 'instance-of-node-1-0123456789';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  await bed.client.enrollNode({ nodeId: 'node-1', instanceId });
});
afterEach(() => bed.stop());

const beat = (highestEpoch: bigint, orderRevision = 0n) =>
  bed.client.heartbeat({
    hello: {
      ...{ nodeId: 'node-1', instanceId, clusterId: bed.state.clusterId },
      ...{ protocolMin: 1, protocolMax: 2, highestEpoch },
    },
    inventory: {
      replicas: [{ replicaId: 'w-0', workloadUid: 'w', phase: Phase.RUNNING, orderRevision }],
      last: true,
    },
  });

describe('RollbackDetector', () => {
  it('refuses an epoch after which there is no next one, and changes go on', async () => {
    await expect(beat(MAX_INT64)).rejects.toThrow(
      `highest_epoch: ${MAX_INT64} of node "node-1" is impossible; this coordinator is at ${bed.state.epoch}`,
    );
    expect(bed.state.storeRolledBack).toBeUndefined();
  });

  it('refuses an order revision after which there is no next one', async () => {
    await expect(beat(0n, MAX_INT64)).rejects.toThrow(
      `order_revision: ${MAX_INT64} of node "node-1" is impossible`,
    );
    expect(bed.state.storeRolledBack).toBeUndefined();
  });

  it('lets an operator accept the largest numbers that are possible', async () => {
    const most = 2n ** 40n;
    await beat(bed.state.epoch + most, bed.state.orderRevision + most);
    expect(bed.state.storeRolledBack).toBeDefined();
    expect(await bed.admin.acceptRestoredState({})).toMatchObject({ accepted: true });
    expect(bed.state.epoch).toBeGreaterThan(most);
    await bed.client.createWorkload({ name: 'web', spec: { command: ['serve'] } });
  });
});
