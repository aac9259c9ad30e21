import { toNodeId, toWorkloadId } from '@cloudless/base';
import {
  describeReasons,
  type LabelRequirement,
  type PlacementRequest,
  type Reservation,
  type WorkloadTerm,
} from './index.js';
import {
  aCluster,
  aNode,
  aRequest,
  aReservation,
  placedOn,
  reservationFor,
} from './testing/builders.js';

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
  ...(namespaces === undefined ? {} : { namespaces }),
});
/** A replica of another workload, labelled `app=<name>`, named by its own id. */
const replica = (name: string, nodeId: string, given: Partial<Reservation> = {}): Reservation =>
  aReservation(`${name}-${nodeId}`, {
    nodeId: toNodeId(nodeId),
    workloadId: toWorkloadId(name),
    labels: { app: name },
    ...given,
  });

/** The nodes on which the request fits, and the reason where none does. */
function fitting(
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
      name: 'the same zone',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1', 'n2'],
    },
    {
      name: 'the same node',
      terms: [required('node', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1'],
    },
    {
      name: 'the same region',
      terms: [required('region', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1', 'n2', 'n3', 'n4'],
    },
    {
      name: 'the same rack',
      terms: [required('rack', 'db')],
      others: [replica('db', 'n3')],
      fits: ['n3', 'n4'],
    },
    {
      name: 'a node without rack is in none',
      terms: [required('rack', 'db')],
      others: [replica('db', 'n2')],
      fits: [],
    },
    { name: 'nobody to follow', terms: [required('zone', 'db')], others: [], fits: [] },
    {
      name: 'one that leaves attracts nothing',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { leaving: true })],
      fits: [],
    },
    {
      name: 'another namespace',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { namespace: 'prod' })],
      fits: [],
    },
    {
      name: 'another namespace, named',
      terms: [required('zone', 'db', ['prod'])],
      others: [replica('db', 'n1', { namespace: 'prod' })],
      fits: ['n1', 'n2'],
    },
    {
      name: 'both terms must hold',
      terms: [required('zone', 'db'), required('zone', 'cache')],
      others: [replica('db', 'n1'), replica('cache', 'n3')],
      fits: [],
    },
    {
      name: 'a node that is not there counts for nothing',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n9')],
      fits: [],
    },
  ])('$name', ({ terms, others, fits }) => {
    expect(fitting({ workloadAffinity: terms }, others)).toEqual(fits);
  });

  it('lets the first replica of a workload that follows itself go anywhere, and the others follow it', () => {
    const request = aRequest({ workloadAffinity: [required('zone', 'web')] });
    expect(fitting(request, [])).toEqual(['n1', 'n2', 'n3', 'n4']);
    const placed = placedOn(aCluster(nodes), request, 4);
    expect(placed).toEqual(['n1', 'n2', 'n1', 'n2']);
    expect(fitting(request, [reservationFor(request, 'web-1', 'n3')])).toEqual(['n3', 'n4']);
  });

  it('lets the first replica start only in a domain', () => {
    expect(fitting({ workloadAffinity: [required('rack', 'web')] }, [])).toEqual([
      'n1',
      'n3',
      'n4',
    ]);
  });

  it('does not let a workload start anywhere that follows itself in another namespace only', () => {
    expect(fitting({ workloadAffinity: [required('zone', 'web', ['prod'])] }, [])).toEqual([]);
  });

  it('names the topology', () => {
    const cluster = aCluster(nodes);
    const request = aRequest({ workloadAffinity: [required('zone', 'db')] });
    const [refused] = cluster.place(request, 1);
    expect(refused?.placed === false && describeReasons(refused.reasons)).toBe(
      'workload affinity zone: 4 of 4 nodes',
    );
    expect(cluster.explain(request)[0]).toMatchObject({
      detail: 'needs a replica of app in (db) in the same zone, none in zone a',
    });
  });
});

describe('required workload anti-affinity', () => {
  it.each<{ name: string; terms: WorkloadTerm[]; others: Reservation[]; fits: string[] }>([
    {
      name: 'another node',
      terms: [required('node', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n2', 'n3', 'n4'],
    },
    {
      name: 'another zone',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n3', 'n4'],
    },
    {
      name: 'another rack; without one there is no clash',
      terms: [required('rack', 'db')],
      others: [replica('db', 'n3'), replica('db', 'n2')],
      fits: ['n1', 'n2'],
    },
    {
      name: 'one that leaves still repels',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { leaving: true })],
      fits: ['n3', 'n4'],
    },
    {
      name: 'another namespace',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { namespace: 'prod' })],
      fits: ['n1', 'n2', 'n3', 'n4'],
    },
    {
      name: 'no term may clash',
      terms: [required('zone', 'db'), required('node', 'cache')],
      others: [replica('db', 'n1'), replica('cache', 'n3')],
      fits: ['n4'],
    },
  ])('$name', ({ terms, others, fits }) => {
    expect(fitting({ workloadAntiAffinity: terms }, others)).toEqual(fits);
  });

  it('against itself gives one replica per domain', () => {
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
      'workload anti-affinity node: 4 of 4 nodes',
    );
  });

  describe('holds both ways', () => {
    const shy = (
      nodeId: string,
      term: WorkloadTerm,
      given: Partial<Reservation> = {},
    ): Reservation => replica('shy', nodeId, { workloadAntiAffinity: [term], ...given });

    it.each<{ name: string; others: Reservation[]; fits: string[] }>([
      {
        name: 'a replica keeps what it avoids away',
        others: [shy('n1', required('zone', 'web'))],
        fits: ['n3', 'n4'],
      },
      {
        name: 'even while it leaves',
        others: [shy('n1', required('zone', 'web'), { leaving: true })],
        fits: ['n3', 'n4'],
      },
      {
        name: 'but not others',
        others: [shy('n1', required('zone', 'db'))],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
      {
        name: 'nor in namespaces it does not speak of',
        others: [shy('n1', required('zone', 'web'), { namespace: 'prod' })],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
      {
        name: 'but in those it names',
        others: [shy('n1', required('zone', 'web', ['default']), { namespace: 'prod' })],
        fits: ['n3', 'n4'],
      },
      {
        name: 'only preferred keeps nobody away',
        others: [
          shy('n1', { mode: 'preferred', weight: 100, selector: app('web'), topology: 'zone' }),
        ],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
    ])('$name', ({ others, fits }) => {
      expect(fitting({}, others)).toEqual(fits);
    });

    it('until it is released', () => {
      const cluster = aCluster(nodes, [shy('n1', required('region', 'web'))]);
      expect(cluster.explain(aRequest())[0]).toMatchObject({
        filter: 'workloadAntiAffinity',
        detail: 'a replica in region eu keeps this workload away',
      });
      cluster.release(shy('n1', required('region', 'web')).replicaId);
      expect(placedOn(cluster, aRequest())).toEqual(['n1']);
    });
  });
});

describe('preferred terms', () => {
  it('draw a replica to those it likes and away from those it does not', () => {
    const likes = aRequest({
      workloadAffinity: [{ mode: 'preferred', weight: 100, selector: app('db'), topology: 'zone' }],
    });
    const dislikes = aRequest({
      workloadAntiAffinity: [
        { mode: 'preferred', weight: 100, selector: app('db'), topology: 'zone' },
      ],
    });
    const tiny = { resources: { cpuMillis: 0, memoryBytes: 0 } };
    expect(placedOn(aCluster(nodes, [replica('db', 'n3', tiny)]), likes)).toEqual(['n3']);
    expect(placedOn(aCluster(nodes, [replica('db', 'n1', tiny)]), dislikes)).toEqual(['n3']);
  });

  it('see the replicas placed in the same call', () => {
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
