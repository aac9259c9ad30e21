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
/** A replica of another workload, labelled `app=<name>` and named by its own id. */
const replica = (name: string, nodeId: string, given: Partial<Reservation> = {}): Reservation =>
  aReservation(`${name}-${nodeId}`, {
    nodeId: toNodeId(nodeId),
    workloadId: toWorkloadId(name),
    labels: { app: name },
    ...given,
  });

/** Returns the nodes on which the request fits, or the reasons when none fits. */
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
      name: 'follows to the same zone',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1', 'n2'],
    },
    {
      name: 'follows to the same node',
      terms: [required('node', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1'],
    },
    {
      name: 'follows to the same region',
      terms: [required('region', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n1', 'n2', 'n3', 'n4'],
    },
    {
      name: 'follows to the same rack',
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
      name: 'does not follow a leaving replica',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { leaving: true })],
      fits: [],
    },
    {
      name: 'does not follow a replica in another namespace',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1', { namespace: 'prod' })],
      fits: [],
    },
    {
      name: 'follows a replica in a namespace that the term names',
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
    expect(fitting({ workloadAffinity: terms }, others)).toEqual(fits);
  });

  it('lets the first replica of a workload with affinity to itself start anywhere, and the others follow it', () => {
    const request = aRequest({ workloadAffinity: [required('zone', 'web')] });
    expect(fitting(request, [])).toEqual(['n1', 'n2', 'n3', 'n4']);
    const placed = placedOn(aCluster(nodes), request, 4);
    expect(placed).toEqual(['n1', 'n2', 'n1', 'n2']);
    expect(fitting(request, [reservationFor(request, 'web-1', 'n3')])).toEqual(['n3', 'n4']);
  });

  it('requires a domain for the first replica', () => {
    expect(fitting({ workloadAffinity: [required('rack', 'web')] }, [])).toEqual([
      'n1',
      'n3',
      'n4',
    ]);
  });

  it('does not let a workload start anywhere when its term matches it only in another namespace', () => {
    expect(fitting({ workloadAffinity: [required('zone', 'web', ['prod'])] }, [])).toEqual([]);
  });

  it('names the topology in the reason', () => {
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
      name: 'allows another node',
      terms: [required('node', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n2', 'n3', 'n4'],
    },
    {
      name: 'allows another zone',
      terms: [required('zone', 'db')],
      others: [replica('db', 'n1')],
      fits: ['n3', 'n4'],
    },
    {
      name: 'allows another rack and a node without a rack',
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
      name: 'allows a replica in another namespace',
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
    expect(fitting({ workloadAntiAffinity: terms }, others)).toEqual(fits);
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
      'workload anti-affinity node: 4 of 4 nodes',
    );
  });

  describe('anti-affinity of existing replicas', () => {
    const repellent = (
      nodeId: string,
      term: WorkloadTerm,
      given: Partial<Reservation> = {},
    ): Reservation => replica('shy', nodeId, { workloadAntiAffinity: [term], ...given });

    it.each<{ name: string; others: Reservation[]; fits: string[] }>([
      {
        name: 'excludes a workload that it matches',
        others: [repellent('n1', required('zone', 'web'))],
        fits: ['n3', 'n4'],
      },
      {
        name: 'excludes while the replica leaves',
        others: [repellent('n1', required('zone', 'web'), { leaving: true })],
        fits: ['n3', 'n4'],
      },
      {
        name: 'allows workloads that it does not match',
        others: [repellent('n1', required('zone', 'db'))],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
      {
        name: 'allows workloads in other namespaces',
        others: [repellent('n1', required('zone', 'web'), { namespace: 'prod' })],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
      {
        name: 'excludes workloads in namespaces that the term names',
        others: [repellent('n1', required('zone', 'web', ['default']), { namespace: 'prod' })],
        fits: ['n3', 'n4'],
      },
      {
        name: 'allows all workloads when the term is preferred',
        others: [
          repellent('n1', {
            mode: 'preferred',
            weight: 100,
            selector: app('web'),
            topology: 'zone',
          }),
        ],
        fits: ['n1', 'n2', 'n3', 'n4'],
      },
    ])('$name', ({ others, fits }) => {
      expect(fitting({}, others)).toEqual(fits);
    });

    it('stops excluding when the replica is released', () => {
      const cluster = aCluster(nodes, [repellent('n1', required('region', 'web'))]);
      expect(cluster.explain(aRequest())[0]).toMatchObject({
        filter: 'workloadAntiAffinity',
        detail: 'the anti-affinity of a replica in region eu excludes this workload',
      });
      cluster.release(repellent('n1', required('region', 'web')).replicaId);
      expect(placedOn(cluster, aRequest())).toEqual(['n1']);
    });
  });
});

describe('preferred workload affinity and anti-affinity', () => {
  it('prefer domains with matching replicas and avoid those with unwanted ones', () => {
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
