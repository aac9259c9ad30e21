import { definedFields, toNodeId, toWorkloadId } from '@cloudless/base';
import { describeReasons, type PlacementRequest, type SchedulerNode } from '../index.js';
import { aCluster, aNode, aRequest, aReservation, GIB, placedOn } from '../testing/builders.js';

/** `nodesInZones('a a b')` returns nodes n1 and n2 in zone a and n3 in zone b. */
function nodesInZones(text: string): SchedulerNode[] {
  return text.split(' ').map((zone, index) => aNode(`n${index + 1}`, { zone }));
}

/** Counts placed replicas by zone, or by the domain that `getDomain` returns. */
function countByDomain(
  nodes: readonly SchedulerNode[],
  placed: readonly (string | undefined)[],
  getDomain = (node: SchedulerNode) => node.zone ?? '',
): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const id of placed) {
    const node = nodes.find((candidate) => candidate.id === id);
    const domain = node === undefined ? 'refused' : getDomain(node);
    counts[domain] = (counts[domain] ?? 0) + 1;
  }
  return counts;
}

const onNode = (index: number) => ({ nodeId: toNodeId(`n${index}`) });

describe('Cluster.place without a declared spread', () => {
  it('places 5 replicas over 3 zones as 2, 2 and 1', () => {
    const nodes = nodesInZones('a a b b c c');
    expect(
      Object.values(countByDomain(nodes, placedOn(aCluster(nodes), aRequest(), 5))).sort(),
    ).toEqual([1, 2, 2]);
  });

  it('prefers the node with the fewest replicas within a zone, even when a fuller node scores better', () => {
    expect(placedOn(aCluster(nodesInZones('a a a')), aRequest(), 3)).toEqual(['n1', 'n2', 'n3']);
  });

  it('places in the other zones when a zone has no capacity', () => {
    const nodes = [...nodesInZones('a a'), aNode('n3', { zone: 'b', maxReplicas: 1 })];
    expect(countByDomain(nodes, placedOn(aCluster(nodes), aRequest(), 6))).toEqual({ a: 5, b: 1 });
  });

  it('treats zones with the same name in two regions as two zones', () => {
    const nodes = [
      aNode('n1', { region: 'eu' }),
      aNode('n2', { region: 'eu' }),
      aNode('n3', { region: 'us', reliability: 0 }),
    ];
    expect(placedOn(aCluster(nodes), aRequest(), 2)).toEqual(['n1', 'n3']);
  });

  it('counts existing replicas of the workload, of any version', () => {
    const cluster = aCluster(nodesInZones('a b'), [
      aReservation('web-1', onNode(1)),
      aReservation('web-2', { ...onNode(1), labels: { app: 'web', version: '0' } }),
    ]);
    expect(placedOn(cluster, aRequest(), 3)).toEqual(['n2', 'n2', 'n1']);
  });

  it('does not count leaving replicas, but counts their resources as used', () => {
    const half = { cpuMillis: 2_000, memoryBytes: GIB };
    const leaving = { ...onNode(1), leaving: true, resources: half };
    const cluster = aCluster(nodesInZones('a b'), [
      aReservation('web-1', leaving),
      aReservation('web-2', { ...onNode(2), resources: half }),
    ]);
    expect(placedOn(cluster, aRequest({ resources: half }), 3)).toEqual(['n1', 'n2', undefined]);
  });

  it('does not count replicas of other workloads', () => {
    const cluster = aCluster(nodesInZones('a b'), [
      aReservation('db-1', {
        ...onNode(1),
        workloadId: 'db' as never,
        resources: { cpuMillis: 2_000, memoryBytes: 4 * GIB },
      }),
    ]);
    // Both replicas are on n1: it is the fuller node, which scores better.
    expect(placedOn(cluster, aRequest())).toEqual(['n1']);
  });
});

describe('Cluster with a required spread', () => {
  const spread = (topology: string, maxSkew?: number): Partial<PlacementRequest> => ({
    spread: { topology, mode: 'required', ...definedFields({ maxSkew }) },
  });

  it.each([1, 2, 3, 4, 5, 6, 7])(
    'places %i replicas over 3 zones with a difference of at most 1',
    (count) => {
      const nodes = nodesInZones('a a b c');
      const counts = {
        a: 0,
        b: 0,
        c: 0,
        ...countByDomain(nodes, placedOn(aCluster(nodes), aRequest(spread('zone')), count)),
      };
      expect(Object.values(counts).reduce((sum, n) => sum + n)).toBe(count);
      expect(
        Math.max(...Object.values(counts)) - Math.min(...Object.values(counts)),
      ).toBeLessThanOrEqual(1);
    },
  );

  it('refuses a placement that would exceed the skew and names the filter', () => {
    const cluster = aCluster([...nodesInZones('a b'), aNode('n3', { zone: 'c', maxReplicas: 1 })]);
    const placements = cluster.place(aRequest(spread('zone')), 7);
    expect(placements.map(({ placed }) => placed)).toEqual([
      true,
      true,
      true,
      true,
      true,
      false,
      false,
    ]);
    const last = placements[6];
    expect(last?.placed === false && describeReasons(last.reasons)).toBe(
      'the spread over zone allows no further replica: 2 of 3 nodes; holds its largest number of replicas: 1 of 3 nodes',
    );
  });

  it('places until the domains differ by maxSkew', () => {
    const cluster = aCluster([...nodesInZones('a b'), aNode('n3', { zone: 'c', maxReplicas: 1 })]);
    expect(
      placedOn(cluster, aRequest(spread('zone', 2)), 9).filter((id) => id !== undefined),
    ).toHaveLength(7);
  });

  it('places the next replica after a workload with the same spec came when there were more slots', () => {
    const nodes = nodesInZones(Array.from({ length: 16 }, () => 'a').join(' '));
    const request = (name: string): PlacementRequest =>
      aRequest({ ...spread('zone'), workloadId: toWorkloadId(name) });
    const ghost = aReservation('ghost-1', { nodeId: toNodeId('ghost') });
    const others = [1, 2, 3, 4].map((index) =>
      aReservation(`other-${index}`, { ...onNode(index), workloadId: toWorkloadId('other') }),
    );
    const cluster = aCluster(nodes);
    cluster.place(request('web'), 2);
    // A reservation on a node that is not known takes the 17th slot.
    cluster.reserve(ghost);
    cluster.place(request('shop'), 2);
    for (const reservation of others) cluster.reserve(reservation);
    expect(cluster.place(request('web'), 3)).toEqual(
      aCluster(nodes, [ghost, ...others]).place(request('web'), 3),
    );
  });

  it('explains how far a domain is above the emptiest one', () => {
    const cluster = aCluster(
      [
        aNode('n1'),
        aNode('n2', { zone: 'b', maxReplicas: 0 }),
        aNode('n3', { zone: 'c' }),
        aNode('n4', { zone: '' }),
      ],
      [aReservation('web-1')],
    );
    const details = cluster
      .explain(aRequest(spread('zone')))
      .map((node) => `${node.nodeId} ${node.fits ? 'fits' : node.reasons[0]?.text}`);
    expect(details).toEqual([
      'n3 fits',
      'n1 replicas: 1 in zone a, 0 in the emptiest zone; they may differ by 1',
      'n2 holds 0 replicas of at most 0',
      'n4 is in no zone, but the spread requires one',
    ]);
  });

  it.each<{ name: string; excluded: Partial<SchedulerNode> }>([
    { name: 'lost', excluded: { availability: { lost: true } } },
    { name: 'cordoned', excluded: { availability: { cordoned: true } } },
    { name: 'tainted', excluded: { taints: [{ key: 'x', effect: 'NoExecute' }] } },
    {
      name: 'too small even when empty',
      excluded: { capacity: { cpuMillis: 100, memoryBytes: GIB } },
    },
    { name: 'limited to 0 replicas', excluded: { maxReplicas: 0 } },
  ])('ignores a zone whose nodes are all $name', ({ excluded }) => {
    const nodes = [...nodesInZones('a b'), aNode('n3', { zone: 'c', ...excluded })];
    expect(countByDomain(nodes, placedOn(aCluster(nodes), aRequest(spread('zone')), 4))).toEqual({
      a: 2,
      b: 2,
    });
  });

  it('refuses a placement while the emptiest zone is only full', () => {
    const full = aReservation('db-1', {
      ...onNode(2),
      workloadId: 'db' as never,
      resources: { cpuMillis: 4_000, memoryBytes: GIB },
    });
    expect(placedOn(aCluster(nodesInZones('a b'), [full]), aRequest(spread('zone')), 2)).toEqual([
      'n1',
      undefined,
    ]);
  });

  it('places in the emptiest zones when the distribution has become uneven', () => {
    const cluster = aCluster(
      nodesInZones('a b c'),
      ['web-1', 'web-2', 'web-3'].map((id) => aReservation(id)),
    );
    const placed = placedOn(cluster, aRequest(spread('zone')), 6);
    expect(placed.slice(0, 4).sort()).toEqual(['n2', 'n2', 'n3', 'n3']);
    expect(placed.slice(4).sort()).toEqual(['n2', 'n3']);
  });

  it.each<{ topology: string; getDomain: (node: SchedulerNode) => string }>([
    { topology: 'node', getDomain: (node) => node.id },
    { topology: 'region', getDomain: (node) => node.region ?? '' },
    { topology: 'rack', getDomain: (node) => node.labels?.['rack'] ?? '' },
  ])('spreads evenly over the domains of topology $topology', ({ topology, getDomain }) => {
    const nodes = [1, 2, 3, 4].map((n) =>
      aNode(`n${n}`, {
        zone: `z${n}`,
        region: n === 4 ? 'us' : 'eu',
        labels: { rack: n < 2 ? 'r1' : 'r2' },
      }),
    );
    const counts = Object.values(
      countByDomain(nodes, placedOn(aCluster(nodes), aRequest(spread(topology)), 8), getDomain),
    );
    expect(new Set(counts)).toEqual(new Set([8 / new Set(nodes.map(getDomain)).size]));
  });

  it('excludes nodes without the topology label', () => {
    const nodes = [aNode('n1', { labels: { rack: 'r1' } }), aNode('n2')];
    expect(placedOn(aCluster(nodes), aRequest(spread('rack')), 3)).toEqual(['n1', 'n1', 'n1']);
    const [refused] = aCluster([aNode('n2')]).place(aRequest(spread('rack')), 1);
    expect(refused).toEqual({
      placed: false,
      reasons: [
        {
          filter: 'spread',
          detail: 'rack',
          lasting: true,
          text: 'in no rack, but the spread requires one',
          nodes: 1,
          of: 1,
        },
      ],
    });
  });
});

describe('Cluster.place with a preferred spread', () => {
  const request = aRequest({ spread: { topology: 'region', mode: 'preferred' } });

  it('ranks the emptiest domain before zones, nodes and score', () => {
    const nodes = [...nodesInZones('a b c'), aNode('n4', { region: 'us', reliability: 0 })];
    expect(
      countByDomain(nodes, placedOn(aCluster(nodes), request, 6), (node) => node.region ?? ''),
    ).toEqual({ eu: 3, us: 3 });
  });

  it('places elsewhere when the emptiest domain has no capacity', () => {
    const nodes = [...nodesInZones('a b'), aNode('n3', { region: 'us', maxReplicas: 1 })];
    expect(
      countByDomain(nodes, placedOn(aCluster(nodes), request, 5), (node) => node.region ?? ''),
    ).toEqual({ eu: 4, us: 1 });
  });

  it('chooses a node in no domain last', () => {
    const nodes = [
      aNode('n1', { region: '' }),
      aNode('n2', { region: 'us', maxReplicas: 2, reliability: 0 }),
    ];
    expect(placedOn(aCluster(nodes), request, 3)).toEqual(['n2', 'n2', 'n1']);
  });
});
