import { definedFields, toNodeId, toWorkloadId } from '@cloudless/base';
import {
  describeReasons,
  type LabelRequirement,
  type PlacementRequest,
  type Reservation,
  type WorkloadTerm,
} from '../index.js';
import {
  aCluster,
  aNode,
  aRequest,
  aReservation,
  placedOn,
  reservationFor,
} from '../testing/builders.js';

const nodes = [
  aNode('n1', { zone: 'a', labels: { rack: 'r1' } }),
  aNode('n2', { zone: 'a' }),
  aNode('n3', { zone: 'b', labels: { rack: 'r2' } }),
  aNode('n4', { zone: 'b', labels: { rack: 'r2' } }),
];

const app = (...names: string[]): LabelRequirement[] => [
  { key: 'app', operator: 'In', values: names },
];
const required = (topology: string, name: string, namespaces?: string[]): WorkloadTerm => ({
  mode: 'required',
  selector: app(name),
  topology,
  ...definedFields({ namespaces }),
});
/** A replica of the workload `name`, with the label `app=<name>`. */
const replica = (name: string, nodeId: string, changes: Partial<Reservation> = {}): Reservation =>
  aReservation(`${name}-${nodeId}`, {
    nodeId: toNodeId(nodeId),
    workloadId: toWorkloadId(name),
    labels: { app: name },
    ...changes,
  });

/** Returns the ids of the nodes on which the request fits, sorted. */
function findFittingNodes(
  request: Partial<PlacementRequest>,
  reservations: readonly Reservation[],
): readonly string[] {
  const explanations = aCluster(nodes, reservations).explain(aRequest(request));
  return explanations
    .filter(({ fits }) => fits)
    .map(({ nodeId }) => nodeId)
    .sort();
}

describe('required workload affinity', () => {
  it.each<{ name: string; terms: WorkloadTerm[]; others: Reservation[]; fits: string[] }>([
    {
      name: 'allows only nodes in the zone of a matching replica',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1', 'n2'],
    },
    {
      name: 'allows only the node of a matching replica',
      terms: [required('node', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1'],
    },
    {
      name: 'allows only nodes in the region of a matching replica',
      terms: [required('region', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1', 'n2', 'n3', 'n4'],
    },
    {
      name: 'allows only nodes with the rack label of a matching replica',
      terms: [required('rack', 'db')],
      others: [replica('db', 'n3')],
      fits: ['n3', 'n4'],
    },
    {
      name: 'excludes a node without the topology label',
      terms: [required('rack', 'db')],
      others: [replica('db', 'n2')],
      fits: [],
    },
    {
      name: 'excludes all nodes when no replica matches',
      terms: [required('zone', 'db')],
      others: [],
      fits: [],
    },
    {
      name: 'does not count a leaving replica',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { leaving: true })],
      fits: [],
    },
    {
      name: 'does not count a replica in another namespace',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { namespace: 'prod' })],
      fits: [],
    },
    {
      name: 'counts a replica in a namespace that the term names',
      terms: [required('zone', 'db', ['prod'])],
      others: [replica('db', 'n1', { namespace: 'prod' })],
      fits: ['n1', 'n2'],
    },
    {
      name: 'requires that both terms match',
      terms: [required('zone', 'db'), required('zone', 'cache')],
      others: [replica('db', 'n1'), replica('cache', 'n3')],
      fits: [],
    },
    {
      name: 'ignores a reservation on an unknown node',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n9')],
      fits: [],
    },
  ])('$name', ({ terms, others, fits }) => {
    expect(findFittingNodes({ workloadAffinity: terms }, others)).toEqual(fits);
  });

  it('allows any zone for the first replica of a workload with affinity to itself, and then its zone', () => {
    const request = aRequest({ workloadAffinity: [required('zone', 'web')] });
    expect(findFittingNodes(request, [])).toEqual(['n1', 'n2', 'n3', 'n4']);
    const placed = placedOn(aCluster(nodes), request, 4);
    expect(placed).toEqual(['n1', 'n2', 'n1', 'n2']);
    expect(findFittingNodes(request, [reservationFor(request, 'web-1', 'n3')])).toEqual([
      'n3',
      'n4',
    ]);
  });

  it('allows only nodes in a domain for the first replica of a workload with affinity to itself', () => {
    expect(findFittingNodes({ workloadAffinity: [required('rack', 'web')] }, [])).toEqual([
      'n1',
      'n3',
      'n4',
    ]);
  });

  it('allows no node when the term matches its own workload only in another namespace', () => {
    expect(findFittingNodes({ workloadAffinity: [required('zone', 'web', ['prod'])] }, [])).toEqual(
      [],
    );
  });

  it('names the topology in the reason', () => {
    const cluster = aCluster(nodes);
    const request = aRequest({ workloadAffinity: [required('zone', 'db')] });
    const [refused] = cluster.place(request, 1);
    expect(refused?.placed === false && describeReasons(refused.reasons)).toBe(
      'no replica of app in (db) in the same zone: 4 of 4 nodes',
    );
    expect(cluster.explain(request)[0]).toMatchObject({
      reasons: [{ text: 'needs a replica of app in (db) in the same zone, none in zone a' }],
    });
  });
});

describe('required workload anti-affinity', () => {
  it.each<{ name: string; terms: WorkloadTerm[]; others: Reservation[]; fits: string[] }>([
    {
      name: 'allows the other nodes for topology node',
      terms: [required('node', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n2', 'n3', 'n4'],
    },
    {
      name: 'allows the other zones for topology zone',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n3', 'n4'],
    },
    {
      name: 'allows the other racks and nodes without a rack for topology rack',
      terms: [required('rack', 'db')],
      others: [replica('db', 'n3'), replica('db', 'n2')],
      fits: ['n1', 'n2'],
    },
    {
      name: 'excludes the domain of a leaving replica',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { leaving: true })],
      fits: ['n3', 'n4'],
    },
    {
      name: 'does not count a replica in another namespace',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { namespace: 'prod' })],
      fits: ['n1', 'n2', 'n3', 'n4'],
    },
    {
      name: 'excludes a node when one of two terms matches',
      terms: [required('zone', 'db'), required('node', 'cache')],
      others: [replica('db', 'n1'), replica('cache', 'n3')],
      fits: ['n4'],
    },
  ])('$name', ({ terms, others, fits }) => {
    expect(findFittingNodes({ workloadAntiAffinity: terms }, others)).toEqual(fits);
  });

  it('places one replica per domain when the term matches its own workload', () => {
    const perZone = aRequest({ workloadAntiAffinity: [required('zone', 'web')] });
    expect(placedOn(aCluster(nodes), perZone, 3)).toEqual(['n1', 'n3', undefined]);
    const perNode = aRequest({ workloadAntiAffinity: [required('node', 'web')] });
    const placements = aCluster(nodes).place(perNode, 5);
    expect(placements.map((placement) => placement.placed)).toEqual([
      true,
      true,
      true,
      true,
      false,
    ]);
    expect(placements[4]?.placed === false && describeReasons(placements[4].reasons)).toBe(
      'anti-affinity to a replica in the same node: 4 of 4 nodes',
    );
  });

  it('names the first topology when terms of the request and of a replica exclude the node', () => {
    const other = replica('db', 'n1', { workloadAntiAffinity: [required('zone', 'web')] });
    const request = aRequest({ workloadAntiAffinity: [required('node', 'db')] });
    const nodeN1 = aCluster(nodes, [other])
      .explain(request)
      .find(({ nodeId }) => nodeId === 'n1');
    expect(nodeN1).toMatchObject({
      reasons: [{ text: 'anti-affinity to app in (db), which has a replica in node n1' }],
    });
  });

  describe('of existing replicas', () => {
    const replicaWithTerm = (
      nodeId: string,
      term: WorkloadTerm,
      changes: Partial<Reservation> = {},
    ): Reservation => replica('other', nodeId, { workloadAntiAffinity: [term], ...changes });

    it.each<{ name: string; others: Reservation[]; fits: string[] }>([
      {
        name: 'excludes a workload that the term matches',
        others: [replicaWithTerm('n1', required('zone', 'web'))],
        fits: ['n3', 'n4'],
      },
      {
        name: 'excludes a workload while the existing replica is leaving',
        others: [replicaWithTerm('n1', required('zone', 'web'), { leaving: true })],
        fits: ['n3', 'n4'],
      },
      {
        name: 'allows a workload that the term does not match',
        others: [replicaWithTerm('n1', required('zone', 'db'))],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
      {
        name: 'allows a workload in another namespace',
        others: [replicaWithTerm('n1', required('zone', 'web'), { namespace: 'prod' })],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
      {
        name: 'excludes a workload in a namespace that the term names',
        others: [
          replicaWithTerm('n1', required('zone', 'web', ['default']), { namespace: 'prod' }),
        ],
        fits: ['n3', 'n4'],
      },
      {
        name: 'allows a workload when the term is preferred',
        others: [
          replicaWithTerm('n1', {
            mode: 'preferred',
            weight: 100,
            selector: app('web'),
            topology: 'zone',
          }),
        ],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
    ])('$name', ({ others, fits }) => {
      expect(findFittingNodes({}, others)).toEqual(fits);
    });

    it('allows a workload again when the existing replica is released', () => {
      const cluster = aCluster(nodes, [replicaWithTerm('n1', required('region', 'web'))]);
      expect(cluster.explain(aRequest())[0]).toMatchObject({
        reasons: [
          {
            filter: 'workloadAntiAffinity',
            text: 'the anti-affinity of a replica in region eu excludes this workload',
          },
        ],
      });
      cluster.release(replicaWithTerm('n1', required('region', 'web')).replicaId);
      expect(placedOn(cluster, aRequest())).toEqual(['n1']);
    });
  });
});

describe('preferred workload affinity and anti-affinity', () => {
  it('rank a domain with a matching replica first (affinity) or last (anti-affinity)', () => {
    const withAffinity = aRequest({
      workloadAffinity: [{ mode: 'preferred', weight: 100, selector: app('db'), topology: 'zone' }],
    });
    const withAntiAffinity = aRequest({
      workloadAntiAffinity: [
        { mode: 'preferred', weight: 100, selector: app('db'), topology: 'zone' },
      ],
    });
    const noResources = { resources: { cpuMillis: 0, memoryBytes: 0 } };
    expect(placedOn(aCluster(nodes, [replica('db', 'n3', noResources)]), withAffinity)).toEqual([
      'n3',
    ]);
    expect(placedOn(aCluster(nodes, [replica('db', 'n1', noResources)]), withAntiAffinity)).toEqual(
      ['n3'],
    );
  });

  it('count the replicas placed in the same call', () => {
    const request = aRequest({
      workloadAffinity: [{ mode: 'preferred', weight: 50, selector: app('web'), topology: 'zone' }],
    });
    const placements = aCluster(nodes).place(request, 3);
    expect(
      placements.map(
        (placement) => placement.placed && [placement.nodeId, placement.terms.affinity],
      ),
    ).toEqual([
      ['n1', 0],
      ['n3', 0],
      ['n2', 0.1],
    ]);
  });
});
