import fc from 'fast-check';
import { createSeededRandom, toNodeId } from '@cloudless/base';
import { describeReasons, type PlacementFilter, type SchedulerNode } from '../index.js';
import {
  aCluster,
  aNode,
  aRequest,
  aReservation,
  GIB,
  reservationFor,
} from '../testing/builders.js';
import { findFailingFilters } from '../testing/oracle.js';
import { aWorld } from '../testing/worlds.js';

const worlds = fc.integer().map((seed) => aWorld(createSeededRandom(seed)));
const ids = (...names: string[]) => names.map(toNodeId);

describe('Cluster.eligibleNodes', () => {
  const dedicated = { key: 'dedicated', value: 'gpu' };
  it.each<{ name: string; node: Partial<SchedulerNode>; expected: boolean | undefined }>([
    { name: 'returns a healthy node as schedulable', node: {}, expected: true },
    {
      name: 'returns a full node as schedulable',
      node: { capacity: { cpuMillis: 0, memoryBytes: 0 } },
      expected: true,
    },
    {
      name: 'returns a node that allows no replicas as schedulable',
      node: { maxReplicas: 0 },
      expected: true,
    },
    {
      name: 'returns a cordoned node as not schedulable',
      node: { availability: { cordoned: true } },
      expected: false,
    },
    {
      name: 'returns a quarantined node as not schedulable',
      node: { availability: { quarantined: true } },
      expected: false,
    },
    {
      name: 'returns a lost node as not schedulable',
      node: { availability: { lost: true } },
      expected: false,
    },
    {
      name: 'returns a draining node as not schedulable',
      node: { availability: { draining: true } },
      expected: false,
    },
    {
      name: 'returns a node with a NoSchedule taint as not schedulable',
      node: { taints: [{ ...dedicated, effect: 'NoSchedule' }] },
      expected: false,
    },
    {
      name: 'omits a node with a NoExecute taint',
      node: { taints: [{ ...dedicated, effect: 'NoExecute' }] },
      expected: undefined,
    },
    {
      name: 'ignores a PreferNoSchedule taint',
      node: { taints: [{ ...dedicated, effect: 'PreferNoSchedule' }] },
      expected: true,
    },
    {
      name: 'omits a node with another label',
      node: { labels: { disk: 'hdd' } },
      expected: undefined,
    },
    { name: 'omits a node in another zone', node: { zone: 'b' }, expected: undefined },
    {
      name: 'omits a node without a required capability',
      node: { capabilities: [] },
      expected: undefined,
    },
  ])('$name', ({ node, expected }) => {
    const request = aRequest({
      nodeSelector: { disk: 'ssd' },
      zones: ['a'],
      capabilities: ['runtime.process'],
    });
    const fitting = { labels: { disk: 'ssd' }, capabilities: ['runtime.process'] };
    const eligible = aCluster([aNode('n1', { ...fitting, ...node })]).eligibleNodes(request);
    expect(eligible).toEqual(
      expected === undefined ? [] : [{ nodeId: 'n1', schedulable: expected }],
    );
  });

  it('returns a node with a suspended capability as not schedulable', () => {
    const node = { capabilities: ['runtime.cri'], suspendedCapabilities: ['runtime.cri'] };
    const eligible = aCluster([aNode('n1', node)]).eligibleNodes(
      aRequest({ capabilities: ['runtime.cri'] }),
    );
    expect(eligible).toEqual([{ nodeId: 'n1', schedulable: false }]);
  });

  it('returns a node that does not name the directory of a host path as not schedulable', () => {
    const node = { capabilities: ['volumes.hostpath', 'host-path./run'] };
    const eligible = aCluster([aNode('n1', node)]).eligibleNodes(
      aRequest({ capabilities: ['volumes.hostpath', 'host-path./var/run/app'] }),
    );
    expect(eligible).toEqual([{ nodeId: 'n1', schedulable: false }]);
  });

  it('ignores tolerated taints', () => {
    const taints = (['NoSchedule', 'NoExecute'] as const).map((effect) => ({
      key: 'spot',
      effect,
    }));
    const request = aRequest({ tolerations: [{ key: 'spot', operator: 'Exists' }] });
    expect(aCluster([aNode('n1', { taints })]).eligibleNodes(request)).toEqual([
      { nodeId: 'n1', schedulable: true },
    ]);
  });

  it('orders nodes by id, independent of the order in which they were added', () => {
    const eligible = aCluster([aNode('n2'), aNode('n10'), aNode('n1')]).eligibleNodes(aRequest());
    expect(eligible.map(({ nodeId }) => nodeId)).toEqual(['n1', 'n10', 'n2']);
  });

  it('agrees with the brute-force oracle', () => {
    const ignoredFilters: readonly PlacementFilter[] = [
      ...(['replicas', 'cpu', 'memory', 'storage', 'bandwidth', 'gpu'] as const),
      ...(['customResource', 'hostPort', 'workloadAffinity'] as const),
      ...(['workloadAntiAffinity', 'spread'] as const),
    ];
    fc.assert(
      fc.property(worlds, (world) => {
        const cluster = aCluster(world.nodes, world.reservations);
        for (const request of world.requests) {
          const passesFilter = (node: SchedulerNode): boolean =>
            [...findFailingFilters(world, request, node)].every((filter) =>
              ignoredFilters.includes(filter),
            );
          const expected = world.nodes
            .filter((node) => {
              const taints = (node.taints ?? []).filter(({ effect }) => effect === 'NoExecute');
              return passesFilter({ ...node, availability: {}, taints });
            })
            .map((node) => ({ nodeId: node.id, schedulable: passesFilter(node) }))
            .sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
          expect(cluster.eligibleNodes(request)).toEqual(expected);
        }
      }),
      { numRuns: 200 },
    );
  });
});

describe('Cluster.placeOn', () => {
  it('places on the named node even when another node is better', () => {
    const cluster = aCluster([aNode('n1'), aNode('n2', { reliability: 0.1 })]);
    expect(cluster.place(aRequest(), 1)).toMatchObject([{ nodeId: 'n1' }]);
    expect(cluster.placeOn(aRequest(), ids('n2'))).toMatchObject([{ placed: true, nodeId: 'n2' }]);
  });

  it('refuses with the reason of one node and continues with the next', () => {
    const cluster = aCluster([
      aNode('n1', { capacity: { cpuMillis: 4_000, memoryBytes: GIB / 4 } }),
      aNode('n2'),
    ]);
    const [refused, placed, unknown] = cluster.placeOn(aRequest(), ids('n1', 'n2', 'n3'));
    expect(refused?.placed === false && describeReasons(refused.reasons)).toBe(
      'needs 512Mi memory, the node has 256Mi: 1 of 1 nodes',
    );
    expect(placed).toMatchObject({ placed: true, nodeId: 'n2' });
    expect(unknown).toEqual({ placed: false, reasons: [] });
  });

  it('considers earlier placements of the call on the same node', () => {
    const cluster = aCluster(
      [aNode('n1', { capacity: { cpuMillis: 1_200, memoryBytes: 8 * GIB } })],
      [aReservation('web-1')],
    );
    expect(cluster.placeOn(aRequest(), ids('n1', 'n1')).map(({ placed }) => placed)).toEqual([
      true,
      false,
    ]);
    expect(cluster.usage(toNodeId('n1'))?.replicas).toBe(1);
  });

  it('agrees with explain for each node when each placement is reserved before the next', () => {
    fc.assert(
      fc.property(worlds, (world) => {
        for (const request of world.requests) {
          const cluster = aCluster(world.nodes, world.reservations);
          const nodeIds = [...world.nodes, ...world.nodes].map(({ id }) => id);
          cluster
            .clone()
            .placeOn(request, nodeIds)
            .forEach((placement, index) => {
              const verdict = cluster
                .explain(request)
                .find(({ nodeId }) => nodeId === nodeIds[index]);
              if (verdict === undefined) throw new Error('explain returned no entry for this node');
              const { nodeId, score, terms } = verdict;
              expect(placement).toMatchObject(
                verdict.fits
                  ? { placed: true, nodeId, score, terms }
                  : {
                      placed: false,
                      reasons: verdict.reasons.map(({ filter }) => ({ filter, nodes: 1, of: 1 })),
                    },
              );
              if (placement.placed)
                cluster.reserve(reservationFor(request, `new-${index}`, nodeId));
            });
        }
      }),
      { numRuns: 150 },
    );
  });
});
