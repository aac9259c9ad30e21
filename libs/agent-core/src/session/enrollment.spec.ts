import { createSeededRandom, randomHex, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { toContainerRequest } from '../index.js';
import { aForgetOrder, aStartOrder, AgentTestBed } from '../testing/index.js';

/** Records each call of `onClusterKnown` with the number of Hellos before it. */
const listenTo = (world: AgentTestBed): (readonly [string, number])[] => {
  const told: (readonly [string, number])[] = [];
  world.onClusterKnown = async (clusterId) => {
    await Promise.resolve();
    told.push([clusterId, world.coordinator.hellos.length]);
  };
  return told;
};

describe('onClusterKnown', () => {
  it('is called after the enrolment before the first Hello, then at each start before containers are listed', async () => {
    const world = new AgentTestBed();
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

  it('reports orphans of a previous agent after the enrolment, and stops them when ordered to', async () => {
    const world = new AgentTestBed();
    const { runtime } = world;
    const containerId = toContainerId(randomHex(createSeededRandom(9), 32));
    // The runtime lists containers only once the cluster is known.
    world.onClusterKnown = async (clusterId) => {
      await runtime.start(
        toContainerRequest(aStartOrder({ replicaId: 'old-1' }), {
          clusterId,
          nodeId: 'node-1',
          containerId,
        }),
      );
    };
    await world.start();
    expect(world.summarizeReport('old-1')).toMatchObject({
      phase: 'RUNNING',
      reason: 'this agent has no order for the replica',
    });
    world.coordinator.sendOrder(aForgetOrder({ replicaId: 'old-1' }));
    await world.clock.advance(60_000);
    expect([world.requireReport('old-1').forgotten, await world.runtime.list()]).toEqual([
      true,
      [],
    ]);
  });

  it('does not prevent the session when the containers cannot be listed', async () => {
    const world = new AgentTestBed();
    world.onClusterKnown = async () => {
      world.runtime.list = () => Promise.reject(new Error('nobody answers'));
    };
    await world.start();
    await settle();
    expect(world.agent.connected).toBe(true);
  });
});
