import { jest } from '@jest/globals';
import { SimCluster } from '../sim-cluster/sim-cluster.js';

/** Each world runs for a quarter of an hour of virtual time. */
jest.setTimeout(60_000);

const OUTAGE_MS = 15 * 60_000;
const REPLICAS = 6;
/** Longer than the first back-off of an agent. */
const RESTARTED_WITHIN_MS = 20_000;

/** The running containers as `replica on node`, sorted. */
function describeRunning(world: SimCluster): readonly string[] {
  return [...world.containers.runningContainers()]
    .map(({ owner, node }) => `${owner.replicaId} on ${node.id}`)
    .sort();
}

function countRestarts({ records }: SimCluster): number {
  return [...records.replicas()].reduce((sum, { value }) => sum + value.restarts, 0);
}

describe('all coordinators away for 15 minutes', () => {
  it.each([
    { coordinators: 1, agents: 'run on' },
    { coordinators: 3, agents: 'run on' },
    { coordinators: 3, agents: 'are killed and start again' },
  ])(
    'leave the replicas running, and nothing is duplicated or moved: $coordinators coordinators, agents $agents',
    async ({ coordinators, agents }) => {
      const world = new SimCluster({
        seed: 7,
        plan: {
          ...{ coordinators, nodes: 4, users: 1, weights: {}, drift: true, cpuMillis: 4_000 },
          ...{ historyLimit: 100_000, hostPorts: false, exclusive: false, forwards: true },
        },
      });
      await world.start();
      const spec = { command: ['serve'], replicas: REPLICAS };
      await world.call('create', (client, requestId) =>
        client.createWorkload({ name: 'web', spec, requestId }),
      );
      await world.settle();
      const before = describeRunning(world);
      expect(before).toHaveLength(REPLICAS);
      const replicaIds = [...world.records.replicas()].map(({ value }) => value.id).sort();

      world.coordinators.killAll(OUTAGE_MS);
      await world.advance(OUTAGE_MS / 3);
      expect(describeRunning(world)).toEqual(before);
      const [victim] = world.containers.runningContainers();
      victim?.node.machine.exit(victim.containerId, 1);
      expect(describeRunning(world)).toHaveLength(REPLICAS - 1);
      await world.advance(RESTARTED_WITHIN_MS);
      expect(describeRunning(world)).toEqual(before);
      if (agents !== 'run on') for (const node of world.nodes) node.killAgent();
      await world.advance(OUTAGE_MS - OUTAGE_MS / 3 - RESTARTED_WITHIN_MS - 1_000);
      expect(world.coordinators.leading).toBeUndefined();
      expect(describeRunning(world)).toEqual(before);

      await world.advance(30_000);
      await world.settle();
      expect(world.coordinators.leading).toBeDefined();
      expect(describeRunning(world)).toEqual(before);
      expect([...world.records.replicas()].map(({ value }) => value.id).sort()).toEqual(replicaIds);
      expect(countRestarts(world)).toBe(1);
      expect(world.violations).toEqual([]);
    },
  );
});
