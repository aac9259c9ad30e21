import { createSeededRandom, randomHex, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { toContainerRequest } from './index.js';
import { aForgetOrder, aStartOrder, AgentWorld } from './testing/index.js';

/** Which cluster was told when: with how many Hellos before. */
const listenTo = (world: AgentWorld): (readonly [string, number])[] => {
  const told: (readonly [string, number])[] = [];
  world.onCluster = async (clusterId) => {
    await Promise.resolve();
    told.push([clusterId, world.coordinator.hellos.length]);
  };
  return told;
};

describe('the cluster of a node', () => {
  it('is told when the node has joined it, before the first Hello; then at each start of an agent, before it looks at its containers', async () => {
    const world = new AgentWorld();
    const told = listenTo(world);
    await world.start();
    expect(told).toEqual([['cluster-1', 0]]);
    const listedAfter: number[] = [];
    await world.kill();
    const list = world.runtime.list.bind(world.runtime);
    world.runtime.list = () => {
      listedAfter.push(told.length);
      return list();
    };
    await world.start();
    expect([told, listedAfter]).toEqual([
      [
        ['cluster-1', 0],
        ['cluster-1', 1],
      ],
      [2],
    ]);
  });

  it('has what an agent before it had left there, when that was not reset: it is reported, and goes when the coordinator says so', async () => {
    const world = new AgentWorld();
    const { runtime } = world;
    const containerId = toContainerId(randomHex(createSeededRandom(9), 32));
    // The runtime has something only once the cluster is known.
    world.onCluster = async (clusterId) => {
      await runtime.start(
        toContainerRequest(aStartOrder({ replicaId: 'old-1' }), {
          clusterId,
          nodeId: 'node-1',
          containerId,
        }),
      );
    };
    await world.start();
    expect(world.seen('old-1')).toMatchObject({
      phase: 'RUNNING',
      reason: 'its order is not known here',
    });
    world.coordinator.order(aForgetOrder({ replicaId: 'old-1' }));
    await world.clock.advance(60_000);
    expect([world.report('old-1').forgotten, await world.runtime.list()]).toEqual([true, []]);
  });

  it('that cannot be looked at keeps no agent from its session', async () => {
    const world = new AgentWorld();
    world.onCluster = async () => {
      world.runtime.list = () => Promise.reject(new Error('nobody answers'));
    };
    await world.start();
    await settle();
    expect(world.agent.connected).toBe(true);
  });
});
