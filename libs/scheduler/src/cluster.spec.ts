import { InvalidInputError, toNodeId, toReplicaId, type Violation } from '@cloudless/base';
import {
  createCluster,
  DEFAULT_MAX_REPLICAS,
  type Cluster,
  type PlacementRequest,
  type SchedulerNode,
} from './index.js';
import {
  aCluster,
  aNode,
  aRequest,
  aReservation,
  GIB,
  MIB,
  placedOn,
  reservationFor,
} from './testing/builders.js';

const n1 = toNodeId('n1');
const nothing = { cpuMillis: 0, memoryBytes: 0, storageBytes: 0, bandwidthBps: 0, gpus: 0 };

describe('Cluster.reserve and Cluster.release', () => {
  it('reserves the resources of a replica and frees them on release', () => {
    const cluster = aCluster([
      aNode('n1', { systemReserved: { cpuMillis: 1_000, memoryBytes: GIB } }),
    ]);
    cluster.reserve(
      aReservation('web-1', {
        resources: {
          cpuMillis: 500,
          memoryBytes: GIB,
          storageBytes: GIB,
          bandwidthBps: 7,
          gpus: 0,
        },
      }),
    );
    expect(cluster.usage(n1)).toEqual({
      allocatable: {
        cpuMillis: 3_000,
        memoryBytes: 7 * GIB,
        storageBytes: 100 * GIB,
        bandwidthBps: 1e9,
        gpus: 0,
        custom: {},
      },
      allocated: {
        cpuMillis: 500,
        memoryBytes: GIB,
        storageBytes: GIB,
        bandwidthBps: 7,
        gpus: 0,
        custom: {},
      },
      free: {
        cpuMillis: 2_500,
        memoryBytes: 6 * GIB,
        storageBytes: 99 * GIB,
        bandwidthBps: 1e9 - 7,
        gpus: 0,
        custom: {},
      },
      replicas: 1,
      maxReplicas: DEFAULT_MAX_REPLICAS,
    });
    cluster.release(toReplicaId('web-1'));
    expect(cluster.usage(n1)).toMatchObject({ allocated: nothing, replicas: 0 });
  });

  it('replaces the older reservation of the same replica, and ignores a second release', () => {
    const cluster = aCluster(
      [aNode('n1'), aNode('n2')],
      [aReservation('web-1'), aReservation('web-1', { nodeId: toNodeId('n2'), leaving: true })],
    );
    expect(cluster.usage(n1)).toMatchObject({ allocated: nothing, replicas: 0 });
    expect(cluster.usage(toNodeId('n2'))).toMatchObject({
      allocated: { cpuMillis: 500 },
      replicas: 1,
    });
    cluster.release(toReplicaId('web-1'));
    cluster.release(toReplicaId('web-1'));
    expect(cluster.usage(toNodeId('n2'))).toMatchObject({ allocated: nothing, replicas: 0 });
  });

  it('keeps reservations that are added before their node or outlive the node', () => {
    const cluster = createCluster();
    cluster.reserve(aReservation('web-1'));
    expect(cluster.usage(n1)).toBeUndefined();
    cluster.upsertNode(aNode('n1'));
    expect(cluster.usage(n1)).toMatchObject({ replicas: 1 });
    cluster.removeNode(n1);
    expect(cluster.node(n1)).toBeUndefined();
    expect(cluster.place(aRequest(), 1)).toEqual([{ placed: false, reasons: [] }]);
    cluster.upsertNode(aNode('n1'));
    expect(cluster.usage(n1)).toMatchObject({ replicas: 1 });
  });

  it('keeps reservations on a node that has shrunk, and fits a request without the shrunk resource', () => {
    const cluster = aCluster(
      [aNode('n1', { capacity: { cpuMillis: 400, memoryBytes: 8 * GIB } })],
      [aReservation('web-1')],
    );
    expect(cluster.usage(n1)).toMatchObject({
      allocated: { cpuMillis: 500 },
      free: { cpuMillis: 0 },
    });
    expect(placedOn(cluster, aRequest({ resources: { cpuMillis: 1, memoryBytes: 0 } }))).toEqual([
      undefined,
    ]);
    expect(placedOn(cluster, aRequest({ resources: { cpuMillis: 0, memoryBytes: MIB } }))).toEqual([
      'n1',
    ]);
  });
});

describe('Cluster.place', () => {
  it('considers its earlier placements and does not change the cluster', () => {
    const cluster = aCluster([
      aNode('n1', { capacity: { cpuMillis: 1_200, memoryBytes: 8 * GIB } }),
    ]);
    const first = cluster.place(aRequest(), 3);
    expect(first.map(({ placed }) => placed)).toEqual([true, true, false]);
    expect(first[2]).toMatchObject({
      placed: false,
      reasons: [{ filter: 'cpu', nodes: 1, of: 1 }],
    });
    expect(cluster.usage(n1)).toMatchObject({ allocated: nothing, replicas: 0 });
    expect(cluster.place(aRequest(), 3)).toEqual(first);
  });

  it('returns no placements for 0 replicas', () => {
    expect(aCluster([aNode('n1')]).place(aRequest(), 0)).toEqual([]);
  });

  it('breaks ties by node id', () => {
    const ids = ['n10', 'n2', 'N3', 'n1'];
    expect(placedOn(aCluster(ids.map((id) => aNode(id, { zone: id }))), aRequest(), 4)).toEqual([
      'N3',
      'n1',
      'n10',
      'n2',
    ]);
  });

  it('places at most maxReplicas replicas on a node', () => {
    const noResources = { resources: { cpuMillis: 0, memoryBytes: 0 } };
    expect(
      placedOn(aCluster([aNode('n1')]), aRequest(noResources), 111).filter((id) => id === 'n1'),
    ).toHaveLength(110);
  });
});

describe('Cluster.explain', () => {
  it('lists the node that place would choose first, and nodes that do not fit last', () => {
    const nodes = [
      aNode('n1', { zone: 'b' }),
      aNode('n2'),
      aNode('n3', { availability: { cordoned: true } }),
      aNode('n4', { region: 'us' }),
    ];
    const cluster = aCluster(nodes, [aReservation('web-1', { nodeId: toNodeId('n1') })]);
    const request = aRequest({ regions: ['eu'] });
    const explanations = cluster.explain(request);
    expect(explanations.map(({ nodeId, fits }) => [nodeId, fits])).toEqual([
      ['n2', true],
      ['n1', true],
      ['n3', false],
      ['n4', false],
    ]);
    expect(explanations[1]).toMatchObject({ workloadReplicas: { onNode: 1, inZone: 1 } });
    expect(explanations[2]).toMatchObject({
      reasons: [{ filter: 'cordoned', text: 'the node is cordoned' }],
    });
    expect(placedOn(cluster, request)).toEqual(['n2']);
  });
});

describe('Cluster.clone', () => {
  function countReplicas(cluster: Cluster): (number | undefined)[] {
    return ['n1', 'n2'].map((id) => cluster.usage(toNodeId(id))?.replicas);
  }

  it('returns an equal cluster that changes independently', () => {
    const request = aRequest({
      workloadAntiAffinity: [{ mode: 'required', topology: 'node', selector: [] }],
    });
    const original = aCluster(
      [aNode('n1'), aNode('n2')],
      [reservationFor(request, 'web-1', 'n1')],
      {
        weights: { locality: 1, reliability: 0, cost: 0, utilisation: 0, networkPenalty: 0 },
      },
    );
    const copy = original.clone();
    expect(copy.explain(request)).toEqual(original.explain(request));

    copy.release(toReplicaId('web-1'));
    copy.reserve(reservationFor(request, 'web-2', 'n2'));
    expect([countReplicas(original), countReplicas(copy)]).toEqual([
      [1, 0],
      [0, 1],
    ]);
    expect([placedOn(original, request), placedOn(copy, request)]).toEqual([['n2'], ['n1']]);

    original.removeNode(n1);
    original.release(toReplicaId('web-1'));
    expect(copy.node(n1)).toBeDefined();
    copy.removeNode(toNodeId('n2'));
    expect([countReplicas(original), countReplicas(copy)]).toEqual([
      [undefined, 0],
      [0, undefined],
    ]);
  });
});

describe('Cluster input validation', () => {
  /** Returns the invalid fields that the error of `call` names; none without an error. */
  function findInvalidFields(call: () => unknown): string[] {
    try {
      call();
    } catch (reason) {
      if (reason instanceof InvalidInputError)
        return reason.violations.map(({ field }: Violation) => field);
      throw reason;
    }
    return [];
  }

  it('accepts a valid node and a valid request', () => {
    expect(findInvalidFields(() => createCluster().upsertNode(aNode('n1')))).toEqual([]);
    expect(findInvalidFields(() => createCluster().place(aRequest(), 1))).toEqual([]);
    expect(findInvalidFields(() => createCluster().explain(aRequest()))).toEqual([]);
  });

  it.each<{ node: Partial<SchedulerNode>; fields: string[] }>([
    { node: { id: toNodeId('') }, fields: ['id'] },
    {
      node: { capacity: { cpuMillis: -1, memoryBytes: 0.5, gpus: Number.NaN } },
      fields: ['capacity.cpuMillis', 'capacity.memoryBytes', 'capacity.gpus'],
    },
    {
      node: { systemReserved: { cpuMillis: Infinity, memoryBytes: 0 } },
      fields: ['systemReserved.cpuMillis'],
    },
    { node: { maxReplicas: -1 }, fields: ['maxReplicas'] },
    { node: { reliability: 1.01 }, fields: ['reliability'] },
    { node: { reliability: Number.NaN }, fields: ['reliability'] },
    {
      node: {
        taints: [
          { key: '', effect: 'NoSchedule' },
          { key: 'a', effect: 'Never' as never },
        ],
      },
      fields: ['taints[0].key', 'taints[1].effect'],
    },
  ])('names the invalid fields $fields of a node', ({ node, fields }) => {
    expect(
      findInvalidFields(() => createCluster().upsertNode({ ...aNode('n1'), ...node })),
    ).toEqual(fields);
  });

  const selector = [{ key: 'a', operator: 'Exists' }] as const;
  it.each<{ request: Partial<PlacementRequest>; fields: string[] }>([
    {
      request: { resources: { cpuMillis: 0.5, memoryBytes: -1 }, priority: 1001 },
      fields: ['resources.cpuMillis', 'resources.memoryBytes', 'priority'],
    },
    { request: { locality: 'maybe' as never }, fields: ['locality'] },
    {
      request: {
        nodeAffinity: [{ mode: 'required', requirements: [{ key: '', operator: 'In' }] }],
      },
      fields: ['nodeAffinity[0].requirements[0].key', 'nodeAffinity[0].requirements[0].values'],
    },
    {
      request: {
        nodeAffinity: [
          { mode: 'required', requirements: [{ key: 'a', operator: 'Exists', values: ['x'] }] },
        ],
      },
      fields: ['nodeAffinity[0].requirements[0].values'],
    },
    {
      request: {
        nodeAntiAffinity: [
          { mode: 'required', requirements: [{ key: 'a', operator: 'Gt', values: ['1.5'] }] },
        ],
      },
      fields: ['nodeAntiAffinity[0].requirements[0].values'],
    },
    {
      request: {
        nodeAntiAffinity: [
          { mode: 'required', requirements: [{ key: 'a', operator: 'Lt', values: ['1', '2'] }] },
        ],
      },
      fields: ['nodeAntiAffinity[0].requirements[0].values'],
    },
    {
      request: {
        nodeAffinity: [
          { mode: 'preferred', weight: 0, requirements: [] },
          { mode: 'preferred', weight: 101, requirements: [] },
        ],
      },
      fields: ['nodeAffinity[0].weight', 'nodeAffinity[1].weight'],
    },
    {
      request: { workloadAffinity: [{ mode: 'required', topology: '', selector }] },
      fields: ['workloadAffinity[0].topology'],
    },
    {
      request: {
        workloadAntiAffinity: [{ mode: 'preferred', weight: 1.5, topology: 'node', selector }],
      },
      fields: ['workloadAntiAffinity[0].weight'],
    },
    {
      request: {
        tolerations: [
          { operator: 'Equal', value: 'x' },
          { key: 'a', operator: 'Exists', value: 'x' },
        ],
      },
      fields: ['tolerations[0].key', 'tolerations[1].value'],
    },
    {
      request: { tolerations: [{ key: 'a', operator: 'Lt' as 'Exists' }] },
      fields: ['tolerations[0].operator'],
    },
    {
      request: { spread: { topology: '', mode: 'required', maxSkew: 0 } },
      fields: ['spread.topology', 'spread.maxSkew'],
    },
  ])('names the invalid fields $fields of a request', ({ request, fields }) => {
    expect(findInvalidFields(() => createCluster().place(aRequest(request), 1))).toEqual(fields);
    expect(findInvalidFields(() => createCluster().explain(aRequest(request)))).toEqual(fields);
  });

  it.each([-1, 1.5, Number.NaN, Infinity])('rejects the count %d', (count) => {
    expect(findInvalidFields(() => createCluster().place(aRequest(), count))).toEqual(['count']);
  });

  it('names the invalid fields of a reservation, which is not added', () => {
    const cluster = aCluster([aNode('n1')]);
    expect(
      findInvalidFields(() =>
        cluster.reserve(aReservation('', { resources: { cpuMillis: -1, memoryBytes: 0 } })),
      ),
    ).toEqual(['replicaId', 'resources.cpuMillis']);
    expect(cluster.usage(n1)).toMatchObject({ replicas: 0 });
  });

  it('adds none of several reservations when one of them is invalid', () => {
    const cluster = aCluster([aNode('n1')]);
    const replicas = ['web-1', ''].map((id) => aReservation(id));
    expect(findInvalidFields(() => cluster.reserveAll(aReservation('web-1'), replicas))).toEqual([
      'replicaId',
    ]);
    expect(cluster.usage(n1)).toMatchObject({ replicas: 0 });
  });

  it('replaces the older reservations of replicas that are reserved together', () => {
    const cluster = aCluster([aNode('n1'), aNode('n2')], [aReservation('web-1')]);
    const n2 = toNodeId('n2');
    cluster.reserveAll(
      aReservation('web-1'),
      ['web-1', 'web-2'].map((id) => aReservation(id, { nodeId: n2 })),
    );
    expect(cluster.usage(n1)).toMatchObject({ replicas: 0 });
    expect(cluster.usage(n2)).toMatchObject({ replicas: 2 });
  });
});
