import { createSeededRandom, toNodeId } from '@cloudless/base';
import fc from 'fast-check';
import { describeReasons, type PlacementFilter, type SchedulerNode } from './index.js';
import {
  aCluster,
  aNode,
  aRequest,
  aReservation,
  GIB,
  reservationFor,
} from './testing/builders.js';
import { forbids } from './testing/oracle.js';
import { aWorld } from './testing/worlds.js';

const worlds = fc.integer().map((seed) => aWorld(createSeededRandom(seed)));
const ids = (...names: string[]) => names.map(toNodeId);

describe('eligible', () => {
  const dedicated = { key: 'dedicated', value: 'gpu' };
  it.each<{ name: string; node: Partial<SchedulerNode>; expected: boolean | undefined }>([
    { name: 'a plain node takes new ones', node: {}, expected: true },
    {
      name: 'a full node too',
      node: { capacity: { cpuMillis: 0, memoryBytes: 0 } },
      expected: true,
    },
    {
      name: 'as many replicas as it may hold do not matter',
      node: { maxReplicas: 0 },
      expected: true,
    },
    {
      name: 'a cordoned node may keep what it has',
      node: { availability: { cordoned: true } },
      expected: false,
    },
    { name: 'a quarantined one', node: { availability: { quarantined: true } }, expected: false },
    { name: 'a lost one', node: { availability: { lost: true } }, expected: false },
    { name: 'a draining one', node: { availability: { draining: true } }, expected: false },
    {
      name: 'NoSchedule adds nothing',
      node: { taints: [{ ...dedicated, effect: 'NoSchedule' }] },
      expected: false,
    },
    {
      name: 'NoExecute evicts',
      node: { taints: [{ ...dedicated, effect: 'NoExecute' }] },
      expected: undefined,
    },
    {
      name: 'PreferNoSchedule means nothing',
      node: { taints: [{ ...dedicated, effect: 'PreferNoSchedule' }] },
      expected: true,
    },
    { name: 'another label', node: { labels: { disk: 'hdd' } }, expected: undefined },
    { name: 'another zone', node: { zone: 'b' }, expected: undefined },
    { name: 'no runtime', node: { capabilities: [] }, expected: undefined },
  ])('$name', ({ node, expected }) => {
    const request = aRequest({
      nodeSelector: { disk: 'ssd' },
      zones: ['a'],
      capabilities: ['runtime.process'],
    });
    const fitting = { labels: { disk: 'ssd' }, capabilities: ['runtime.process'] };
    const said = aCluster([aNode('n1', { ...fitting, ...node })]).eligible(request);
    expect(said).toEqual(expected === undefined ? [] : [{ nodeId: 'n1', takesNew: expected }]);
  });

  it('keeps what is on a node whose capability does not work for now, and takes nothing new there', () => {
    const node = { capabilities: ['runtime.cri'], suspendedCapabilities: ['runtime.cri'] };
    const said = aCluster([aNode('n1', node)]).eligible(
      aRequest({ capabilities: ['runtime.cri'] }),
    );
    expect(said).toEqual([{ nodeId: 'n1', takesNew: false }]);
  });

  it('tolerated taints neither evict nor close', () => {
    const taints = (['NoSchedule', 'NoExecute'] as const).map((effect) => ({
      key: 'spot',
      effect,
    }));
    const request = aRequest({ tolerations: [{ key: 'spot', operator: 'Exists' }] });
    expect(aCluster([aNode('n1', { taints })]).eligible(request)).toEqual([
      { nodeId: 'n1', takesNew: true },
    ]);
  });

  it('comes by id, whatever the order of the nodes', () => {
    const said = aCluster([aNode('n2'), aNode('n10'), aNode('n1')]).eligible(aRequest());
    expect(said.map(({ nodeId }) => nodeId)).toEqual(['n1', 'n10', 'n2']);
  });

  it('is what the oracle says of the node alone', () => {
    const onOthers: readonly PlacementFilter[] = [
      ...(['replicas', 'cpu', 'memory', 'storage', 'bandwidth', 'gpu', 'hostPort'] as const),
      ...(['workloadAffinity', 'workloadAntiAffinity', 'spread'] as const),
    ];
    fc.assert(
      fc.property(worlds, (world) => {
        const cluster = aCluster(world.nodes, world.reservations);
        for (const request of world.requests) {
          const passes = (node: SchedulerNode): boolean =>
            [...forbids(world, request, node)].every((filter) => onOthers.includes(filter));
          const expected = world.nodes
            .filter((node) => {
              const taints = (node.taints ?? []).filter(({ effect }) => effect === 'NoExecute');
              return passes({ ...node, availability: {}, taints });
            })
            .map((node) => ({ nodeId: node.id, takesNew: passes(node) }))
            .sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
          expect(cluster.eligible(request)).toEqual(expected);
        }
      }),
      { numRuns: 200 },
    );
  });
});

describe('placeOn', () => {
  it('places on the node that is named, also when another one is better', () => {
    const cluster = aCluster([aNode('n1'), aNode('n2', { reliability: 0.1 })]);
    expect(cluster.place(aRequest(), 1)).toMatchObject([{ nodeId: 'n1' }]);
    expect(cluster.placeOn(aRequest(), ids('n2'))).toMatchObject([{ placed: true, nodeId: 'n2' }]);
  });

  it('refuses for the reason of this node, and goes on with the next', () => {
    const cluster = aCluster([
      aNode('n1', { capacity: { cpuMillis: 4_000, memoryBytes: GIB / 4 } }),
      aNode('n2'),
    ]);
    const [refused, placed, unknown] = cluster.placeOn(aRequest(), ids('n1', 'n2', 'n3'));
    expect(refused?.placed === false && describeReasons(refused.reasons)).toBe(
      'memory: 1 of 1 nodes',
    );
    expect(placed).toMatchObject({ placed: true, nodeId: 'n2' });
    expect(unknown).toEqual({ placed: false, reasons: [] });
  });

  it('counts what it has placed before', () => {
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

  it('says of each node what explain says, one by one', () => {
    fc.assert(
      fc.property(worlds, (world) => {
        for (const request of world.requests) {
          const cluster = aCluster(world.nodes, world.reservations);
          const wanted = [...world.nodes, ...world.nodes].map(({ id }) => id);
          cluster
            .clone()
            .placeOn(request, wanted)
            .forEach((placement, index) => {
              const verdict = cluster
                .explain(request)
                .find(({ nodeId }) => nodeId === wanted[index]);
              if (verdict === undefined) throw new Error('every node is explained');
              const { nodeId, score, terms } = verdict;
              const filter = verdict.fits ? undefined : verdict.filter;
              expect(placement).toMatchObject(
                verdict.fits
                  ? { placed: true, nodeId, score, terms }
                  : { placed: false, reasons: [{ filter, nodes: 1, of: 1 }] },
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
