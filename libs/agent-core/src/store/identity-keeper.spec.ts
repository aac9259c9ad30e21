import { MemoryAgentStore } from '../testing/memory-agent-store.js';
import { IdentityKeeper } from './identity-keeper.js';

describe('IdentityKeeper', () => {
  let store: MemoryAgentStore;
  let keeper: IdentityKeeper;
  beforeEach(() => {
    store = new MemoryAgentStore();
    keeper = new IdentityKeeper(store, { nodeId: 'n1', instanceId: 'i1', highestEpoch: 5n });
  });

  it('stores only an epoch that is higher than the stored epoch', async () => {
    await keeper.raiseEpoch(5n);
    await keeper.raiseEpoch(4n);
    expect(store.writes).toEqual([]);
    await Promise.all([keeper.raiseEpoch(7n), keeper.raiseEpoch(6n), keeper.raiseEpoch(7n)]);
    expect([store.writes, keeper.current.highestEpoch]).toEqual([['identity'], 7n]);
  });

  it('keeps its identity when the store fails', async () => {
    store.failure = new Error('disk full');
    await expect(keeper.raiseEpoch(6n)).rejects.toThrow('disk full');
    await expect(keeper.joinCluster('c1')).rejects.toThrow('disk full');
    expect(keeper.current).toEqual({ nodeId: 'n1', instanceId: 'i1', highestEpoch: 5n });
  });

  it('stores the cluster id', async () => {
    expect(keeper.clusterId).toBe('');
    await keeper.joinCluster('c1');
    expect([keeper.clusterId, store.identity?.clusterId]).toEqual(['c1', 'c1']);
  });
});
