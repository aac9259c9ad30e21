import { createSeededRandom, silentLog } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import {
  copyReplica,
  encodeRecord,
  openClusterState,
  type ClusterState,
} from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
afterEach(() => bed.stop());

/** Makes another coordinator the leader, and lets it stop a replica. */
async function stopByAnotherLeader(id: string): Promise<ClusterState> {
  const successor = await openClusterState({
    ...{ store: bed.store, clock: bed.clock, log: silentLog },
    ...{ random: createSeededRandom(9), holder: 'successor' },
  });
  const read = successor.view().replica(id);
  if (read === undefined) throw new Error(`no replica ${id}`);
  const next = copyReplica(read.value, { desiredRunning: false });
  await successor.commit(successor.transaction().updateReplica(read, next));
  await bed.settle();
  expect(bed.replica(id).desiredRunning).toBe(false);
  expect(bed.state.isLeading).toBe(false);
  return successor;
}

describe('a leader that stood still', () => {
  it.each([
    {
      name: 'sends orders while its lease lasts',
      stoodMs: 1_000,
      sent: ['order', 'endpointsGone'],
    },
    // 1.5 s after the last renewal, which was at most 0.5 s before
    { name: 'sends no order once its lease has run out', stoodMs: 1_500, sent: [] },
  ])('$name, also before the first of its timers fires', async ({ stoodMs, sent }) => {
    bed = await ApiTestBed.open({ isElected: true });
    bed.network.endpoints.add('w-0');
    await bed.putReplica('w-0');
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    const before = agent.kinds.length;
    expect(agent.orders).toEqual(['start w-0']);
    bed.clock.suspend(stoodMs);
    await storeStop('w-0');
    bed.network.reportGone('w-0');
    await settle();
    expect(bed.replica('w-0').desiredRunning).toBe(false);
    await bed.settle(); // the timers fire
    expect(agent.kinds.slice(before)).toEqual(sent);
  });

  /** Stores the decision to stop a replica without a commit, which a former leader cannot make. */
  async function storeStop(id: string): Promise<void> {
    const { entries } = await bed.store.range({ prefix: '/replica/' });
    const { orderRevision } = bed.replica(id);
    const stopped = copyReplica(bed.replica(id), {
      desiredRunning: false,
      orderRevision: orderRevision + 1n,
    });
    const { bytes: value } = encodeRecord('replica', stopped);
    await bed.store.txn([], [{ put: entries[0]?.key ?? '', value }]);
    await settle();
  }
});

describe('a coordinator whose leadership has ended', () => {
  beforeEach(async () => {
    bed = await ApiTestBed.open();
  });

  it('sends no order, although its session of the agent is still open', async () => {
    await bed.putReplica('w-0');
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    expect(agent.orders).toEqual(['start w-0']);
    const successor = await stopByAnotherLeader('w-0');
    await bed.clock.advance(5_000);
    expect(agent.orders).toEqual(['start w-0']);
    await successor.close();
  });

  it('answers a heartbeat without orders', async () => {
    const instanceId = 'instance-of-node-1-0123456789';
    await bed.putReplica('w-0');
    const { clusterId } = await bed.client.enrollNode({ nodeId: 'node-1', instanceId });
    const hello = { nodeId: 'node-1', instanceId, clusterId, protocolMin: 1, protocolMax: 2 };
    const capacity = { cpuMillis: 1_000, memoryBytes: 1_000n };
    const beat = () =>
      bed.client.heartbeat({ hello: { ...hello, capacity }, inventory: { last: false } });
    expect((await beat()).orders).toHaveLength(1);
    const successor = await stopByAnotherLeader('w-0');
    expect((await beat()).orders).toEqual([]);
    await successor.close();
  });
});
