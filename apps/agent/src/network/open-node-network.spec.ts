import type { AgentIdentity } from '@cloudless/agent-core';
import { followCoordinators, listCoordinators } from './open-node-network.js';

describe('coordinators of the network proxy', () => {
  it('are the configured ones and the known ones, with the same protocol', () => {
    const known = ['https://b:1', 'https://a:1', 'http://c:1'].map((address) => ({ address }));
    expect(listCoordinators(['https://a:1'], known)).toEqual(['https://a:1', 'https://b:1']);
    expect(listCoordinators(['http://a:1'])).toEqual(['http://a:1']);
  });

  it('change with each identity that the agent stores, whether or not the disk is full', async () => {
    const seen: unknown[] = [];
    const store = {
      saveIdentity: async (_identity: AgentIdentity): Promise<void> => {
        throw new Error('no space');
      },
    };
    followCoordinators(store, (known) => seen.push(known));
    const coordinators = [{ id: 'c2', address: 'http://b:1' }];
    const identity = { clusterId: 'c', highestEpoch: 1n, coordinators };
    await expect(store.saveIdentity(identity as never)).rejects.toThrow('no space');
    expect(seen).toEqual([coordinators]);
  });
});
