import { create } from '@bufbuild/protobuf';
import { LeaderLeaseRecordSchema, NodeRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import {
  LeadershipLostError,
  NotLeaderError,
  openClusterState,
  type ClusterState,
  type LeadershipMode,
} from '../index.js';
import { encodeRecord, toKey } from '../records/records.js';

const clock = new ManualClock();
const aStore = (): StateStore => createMemoryStateStore({ clock });
const open = (store: StateStore, leadership: LeadershipMode): Promise<ClusterState> =>
  openClusterState({
    ...{ store, clock, leadership, log: silentLog },
    random: createSeededRandom(1),
    holder: `${leadership}/1`,
  });
const putNode = (state: ClusterState, id: string): Promise<unknown> =>
  state.commit(state.transaction().put('node', id, create(NodeRecordSchema, { id })));

/** Writes the lease record of a leader. */
async function putLeaderLease(store: StateStore, lease: string): Promise<bigint> {
  const record = create(LeaderLeaseRecordSchema, {
    epoch: 7n,
    holder: 'c2/9',
    address: 'https://10.0.0.2:8080',
    coordinatorId: 'c2',
  });
  const value = encodeRecord('leaderlease', record).bytes;
  return (await store.txn([], [{ put: toKey('leaderlease', 'leader'), value, lease }])).revision;
}

describe('a ClusterState that follows', () => {
  it('takes no leadership, shows the writes of the leader, and has the cluster id of the store', async () => {
    const store = aStore();
    const follower = await open(store, 'follow');
    expect(await store.get(toKey('leader', 'leader'))).toBeUndefined();
    const leader = await open(store, 'takeAtStart');
    await putNode(leader, 'n');
    await follower.waitForRevision(leader.view().revision);
    expect(follower.view().node('n')).toBeDefined();
    expect(follower.clusterId).toBe(leader.clusterId);
    expect([follower, leader].map(({ role, epoch }) => [role, epoch])).toEqual([
      ['follower', 0n],
      ['leader', 1n],
    ]);
    await Promise.all([follower.close(), leader.close()]);
  });

  it('refuses commits with the address, the id and the epoch of the leader, as long as it knows them', async () => {
    const store = aStore();
    const state = await open(store, 'follow');
    const refused = putNode(state, 'n');
    await expect(refused).rejects.toBeInstanceOf(NotLeaderError);
    await expect(refused).rejects.not.toBeInstanceOf(LeadershipLostError);
    await expect(refused).rejects.toMatchObject({
      reason: 'LEADERSHIP_LOST',
      message:
        'this coordinator follows, and no coordinator leads at the moment; retry in a few seconds',
    });
    const lease = await store.grantLease(1_000);
    await state.waitForRevision(await putLeaderLease(store, lease));
    expect(state.leader()).toEqual({
      epoch: 7n,
      address: 'https://10.0.0.2:8080',
      coordinatorId: 'c2',
    });
    await expect(putNode(state, 'n')).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'this coordinator follows; ask the leader c2',
      metadata: {
        leader_address: 'https://10.0.0.2:8080',
        leader_id: 'c2',
        leader_epoch: '7',
      },
    });
    await store.revokeLease(lease);
    await state.waitForRevision(await store.revision());
    expect(state.leader()).toBeUndefined();
    expect(await store.get(toKey('node', 'n'))).toBeUndefined();
    await state.close();
  });
});
