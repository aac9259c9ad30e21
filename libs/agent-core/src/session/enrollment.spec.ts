import { createSeededRandom, randomHex, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { toContainerRequest } from '../index.js';
import { aForgetOrder, aStartOrder, AgentTestBed } from '../testing/index.js';

/** Records each call of `onClusterKnown` with the number of Hellos before it. */
const recordCalls = (testBed: AgentTestBed): (readonly [string, number])[] => {
  const calls: (readonly [string, number])[] = [];
  testBed.onClusterKnown = async (clusterId) => {
    await Promise.resolve();
    calls.push([clusterId, testBed.coordinator.hellos.length]);
  };
  return calls;
};

describe('onClusterKnown', () => {
  it('is called after the enrolment before the first Hello, and at later starts before containers are listed', async () => {
    const testBed = new AgentTestBed();
    const calls = recordCalls(testBed);
    await testBed.start();
    expect(calls).toEqual([['cluster-1', 0]]);
    const listedAfter: number[] = [];
    await testBed.kill();
    const list = testBed.runtime.list.bind(testBed.runtime);
    testBed.runtime.list = () => {
      listedAfter.push(calls.length);
      return list();
    };
    await testBed.start();
    expect([calls, listedAfter]).toEqual([
      [
        ['cluster-1', 0],
        ['cluster-1', 1],
      ],
      [2],
    ]);
  });

  it('is followed by reports of the orphans that the runtime lists only then, and the coordinator can stop them', async () => {
    const testBed = new AgentTestBed();
    const { runtime } = testBed;
    const containerId = toContainerId(randomHex(createSeededRandom(9), 32));
    // The runtime lists containers only once the cluster is known.
    testBed.onClusterKnown = async (clusterId) => {
      await runtime.start(
        toContainerRequest(aStartOrder({ replicaId: 'old-1' }), {
          clusterId,
          nodeId: 'node-1',
          containerId,
        }),
      );
    };
    await testBed.start();
    expect(testBed.summarizeReport('old-1')).toMatchObject({
      phase: 'RUNNING',
      reason: 'this agent has no order for the replica',
    });
    testBed.coordinator.sendOrder(aForgetOrder({ replicaId: 'old-1' }));
    await testBed.clock.advance(60_000);
    expect([testBed.requireReport('old-1').forgotten, await testBed.runtime.list()]).toEqual([
      true,
      [],
    ]);
  });

  it('is followed by a session even when the containers cannot be listed', async () => {
    const testBed = new AgentTestBed();
    testBed.onClusterKnown = async () => {
      testBed.runtime.list = () => Promise.reject(new Error('no runtime answers'));
    };
    await testBed.start();
    await settle();
    expect(testBed.agent.connected).toBe(true);
  });
});
