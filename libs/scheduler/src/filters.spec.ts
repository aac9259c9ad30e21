import { toNodeId } from '@cloudless/base';
import {
  describeReasons,
  PLACEMENT_FILTERS,
  type PlacementFilter,
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

interface Row {
  readonly name: string;
  readonly node?: Omit<SchedulerNode, 'id' | 'capacity'> & Partial<Pick<SchedulerNode, 'capacity'>>;
  readonly request?: Partial<PlacementRequest>;
  /** What `describeReasons` says of the one node; absent when the node fits. */
  readonly refused?: string;
  /** What `explain` says. */
  readonly detail?: string;
}

const small = {
  cpuMillis: 1_000,
  memoryBytes: GIB,
  storageBytes: GIB,
  bandwidthBps: 1_000_000,
  gpus: 1,
};
const labelled = { labels: { disk: 'ssd', cores: '8' } };
const need = (given: Partial<typeof small>): Partial<PlacementRequest> => ({
  resources: { cpuMillis: 0, memoryBytes: 0, ...given },
});
const dedicated = { key: 'dedicated', value: 'gpu', effect: 'NoSchedule' } as const;
const evicting = { key: 'spot', effect: 'NoExecute' } as const;

function affinity(
  operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist' | 'Gt' | 'Lt',
  key: string,
  ...values: string[]
): Partial<PlacementRequest> {
  return { nodeAffinity: [{ mode: 'required', requirements: [{ key, operator, values }] }] };
}

const rows: Record<string, readonly Row[]> = {
  availability: [
    { name: 'a node nothing is wrong with' },
    {
      name: 'lost',
      node: { availability: { lost: true } },
      refused: 'lost',
      detail: 'the node is lost',
    },
    {
      name: 'draining',
      node: { availability: { draining: true } },
      refused: 'draining',
      detail: 'the node is being drained',
    },
    {
      name: 'cordoned',
      node: { availability: { cordoned: true } },
      refused: 'cordoned',
      detail: 'the node is cordoned',
    },
    {
      name: 'quarantined',
      node: { availability: { quarantined: true } },
      refused: 'quarantined',
      detail: 'the node is quarantined',
    },
    {
      name: 'cordoned and lost counts as lost',
      node: { availability: { cordoned: true, lost: true } },
      refused: 'lost',
    },
    {
      name: 'pressure and no network cost score only',
      node: { conditions: { memoryPressure: true, diskPressure: true, networkUnavailable: true } },
    },
  ],
  locality: [
    { name: 'a region listed second', request: { regions: ['us', 'eu'] } },
    {
      name: 'another region',
      request: { regions: ['us'] },
      refused: 'region',
      detail: 'is in region eu, needs us',
    },
    {
      name: 'a node of no known region',
      node: { region: '' },
      request: { regions: ['us', 'eu'] },
      refused: 'region',
      detail: 'is in no region, needs one of us, eu',
    },
    { name: 'the zone', request: { zones: ['a'] } },
    {
      name: 'another zone',
      request: { zones: ['b', 'c'] },
      refused: 'zone',
      detail: 'is in zone a, needs one of b, c',
    },
    {
      name: 'other region and zone, only preferred',
      request: { regions: ['us'], zones: ['b'], locality: 'preferred' },
    },
  ],
  capability: [
    {
      name: 'all there',
      node: { capabilities: ['runtime.cri', 'exec.tty'] },
      request: { capabilities: ['runtime.cri'] },
    },
    {
      name: 'one missing',
      node: { capabilities: ['runtime.process'] },
      request: { capabilities: ['runtime.process', 'runtime.cri'] },
      refused: 'capability runtime.cri',
      detail: 'lacks the capability runtime.cri',
    },
    {
      name: 'one that does not work for now',
      node: { capabilities: ['runtime.cri'], suspendedCapabilities: ['runtime.cri'] },
      request: { capabilities: ['runtime.cri'] },
      refused: 'capability runtime.cri for now',
      detail: 'lacks the capability runtime.cri for now',
    },
    {
      name: 'one that does not work for now and is not needed',
      node: {
        capabilities: ['runtime.process', 'runtime.cri'],
        suspendedCapabilities: ['runtime.cri'],
      },
      request: { capabilities: ['runtime.process'] },
    },
    {
      name: 'two missing: the first by name, in any order',
      request: { capabilities: ['runtime.cri', 'exec.tty'] },
      refused: 'capability exec.tty',
    },
  ],
  'node selector': [
    { name: 'the value', node: labelled, request: { nodeSelector: { disk: 'ssd' } } },
    {
      name: 'another value',
      node: labelled,
      request: { nodeSelector: { disk: 'nvme' } },
      refused: 'node selector disk=nvme',
      detail: 'lacks the label disk=nvme',
    },
    {
      name: 'no such label, though objects have such a property',
      node: labelled,
      request: { nodeSelector: { constructor: 'x' } },
      refused: 'node selector constructor=x',
    },
  ],
  'node affinity': [
    { name: 'In', node: labelled, request: affinity('In', 'disk', 'nvme', 'ssd') },
    {
      name: 'In, other value',
      node: labelled,
      request: affinity('In', 'disk', 'nvme', 'hdd'),
      refused: 'node affinity disk in (hdd, nvme)',
      detail: 'does not meet disk in (hdd, nvme)',
    },
    {
      name: 'In, no label',
      request: affinity('In', 'disk', 'ssd'),
      refused: 'node affinity disk in (ssd)',
    },
    { name: 'NotIn', node: labelled, request: affinity('NotIn', 'disk', 'hdd') },
    {
      name: 'NotIn, the value',
      node: labelled,
      request: affinity('NotIn', 'disk', 'ssd'),
      refused: 'node affinity disk not in (ssd)',
    },
    { name: 'NotIn, no label', request: affinity('NotIn', 'disk', 'ssd') },
    { name: 'Exists', node: labelled, request: affinity('Exists', 'disk') },
    {
      name: 'Exists, no label',
      request: affinity('Exists', 'disk'),
      refused: 'node affinity disk exists',
    },
    {
      name: 'Exists, though objects have such a property',
      request: affinity('Exists', 'toString'),
      refused: 'node affinity toString exists',
    },
    { name: 'DoesNotExist', request: affinity('DoesNotExist', 'disk') },
    {
      name: 'DoesNotExist, but it does',
      node: labelled,
      request: affinity('DoesNotExist', 'disk'),
      refused: 'node affinity disk does not exist',
    },
    { name: 'Gt', node: labelled, request: affinity('Gt', 'cores', '7') },
    {
      name: 'Gt, equal',
      node: labelled,
      request: affinity('Gt', 'cores', '8'),
      refused: 'node affinity cores > 8',
    },
    {
      name: 'Gt compares numbers, not texts',
      node: { labels: { cores: '10' } },
      request: affinity('Gt', 'cores', '9'),
    },
    { name: 'Lt', node: labelled, request: affinity('Lt', 'cores', '9') },
    {
      name: 'Lt, equal',
      node: labelled,
      request: affinity('Lt', 'cores', '8'),
      refused: 'node affinity cores < 8',
    },
    {
      name: 'Lt of what is no number',
      node: labelled,
      request: affinity('Lt', 'disk', '8'),
      refused: 'node affinity disk < 8',
    },
    {
      name: 'two terms must both match',
      node: labelled,
      request: {
        nodeAffinity: [
          ...(affinity('Exists', 'disk').nodeAffinity ?? []),
          ...(affinity('Exists', 'gpu').nodeAffinity ?? []),
        ],
      },
      refused: 'node affinity gpu exists',
    },
    {
      name: 'preferred excludes nothing',
      request: {
        nodeAffinity: [
          { mode: 'preferred', weight: 100, requirements: [{ key: 'disk', operator: 'Exists' }] },
        ],
      },
    },
  ],
  'node anti-affinity': [
    {
      name: 'all requirements of a term',
      node: labelled,
      request: {
        nodeAntiAffinity: [
          { mode: 'required', requirements: [{ key: 'disk', operator: 'Exists' }] },
        ],
      },
      refused: 'node anti-affinity disk exists',
      detail: 'meets disk exists, which is to be avoided',
    },
    {
      name: 'one of two requirements is not enough',
      node: labelled,
      request: {
        nodeAntiAffinity: [
          {
            mode: 'required',
            requirements: [
              { key: 'disk', operator: 'Exists' },
              { key: 'gpu', operator: 'Exists' },
            ],
          },
        ],
      },
    },
    {
      name: 'preferred excludes nothing',
      node: labelled,
      request: {
        nodeAntiAffinity: [
          { mode: 'preferred', weight: 100, requirements: [{ key: 'disk', operator: 'Exists' }] },
        ],
      },
    },
  ],
  taint: [
    {
      name: 'NoSchedule',
      node: { taints: [dedicated] },
      refused: 'taint dedicated=gpu:NoSchedule',
      detail: 'has the taint dedicated=gpu:NoSchedule, which is not tolerated',
    },
    { name: 'NoExecute', node: { taints: [evicting] }, refused: 'taint spot:NoExecute' },
    {
      name: 'PreferNoSchedule excludes nothing',
      node: { taints: [{ key: 'old', effect: 'PreferNoSchedule' }] },
    },
    {
      name: 'Equal',
      node: { taints: [dedicated] },
      request: {
        tolerations: [{ key: 'dedicated', operator: 'Equal', value: 'gpu', effect: 'NoSchedule' }],
      },
    },
    {
      name: 'Equal, other value',
      node: { taints: [dedicated] },
      request: { tolerations: [{ key: 'dedicated', operator: 'Equal', value: 'db' }] },
      refused: 'taint dedicated=gpu:NoSchedule',
    },
    {
      name: 'Equal, no value on either side',
      node: { taints: [evicting] },
      request: { tolerations: [{ key: 'spot', operator: 'Equal' }] },
    },
    {
      name: 'Exists',
      node: { taints: [dedicated] },
      request: { tolerations: [{ key: 'dedicated', operator: 'Exists' }] },
    },
    {
      name: 'Exists, other key',
      node: { taints: [dedicated] },
      request: { tolerations: [{ key: 'spot', operator: 'Exists' }] },
      refused: 'taint dedicated=gpu:NoSchedule',
    },
    {
      name: 'Exists, other effect',
      node: { taints: [dedicated] },
      request: { tolerations: [{ key: 'dedicated', operator: 'Exists', effect: 'NoExecute' }] },
      refused: 'taint dedicated=gpu:NoSchedule',
    },
    {
      name: 'Exists without key accepts every taint',
      node: { taints: [dedicated, evicting] },
      request: { tolerations: [{ key: '', operator: 'Exists', effect: '' }] },
    },
    {
      name: 'Exists without key, one effect',
      node: { taints: [dedicated, evicting] },
      request: { tolerations: [{ operator: 'Exists', effect: 'NoSchedule' }] },
      refused: 'taint spot:NoExecute',
    },
  ],
  room: [
    { name: 'all of the node', node: { capacity: small }, request: need(small) },
    {
      name: 'cpu',
      node: { capacity: small },
      request: need({ cpuMillis: 1_001 }),
      refused: 'cpu',
      detail: 'needs 1001 m CPU, 1000 m free',
    },
    {
      name: 'cpu kept for the system',
      node: { capacity: small, systemReserved: { cpuMillis: 800, memoryBytes: 0 } },
      request: need({ cpuMillis: 500 }),
      refused: 'cpu',
      detail: 'needs 500 m CPU, 200 m free',
    },
    {
      name: 'memory',
      node: { capacity: small },
      request: need({ memoryBytes: 2 * GIB }),
      refused: 'memory',
      detail: 'needs 2 GiB memory, 1 GiB free',
    },
    {
      name: 'one byte of memory',
      node: { capacity: small },
      request: need({ memoryBytes: GIB + 1 }),
      refused: 'memory',
      detail: 'needs 1073741825 B memory, 1073741824 B free',
    },
    {
      name: 'memory kept for the system',
      node: { capacity: small, systemReserved: { cpuMillis: 0, memoryBytes: 512 * MIB } },
      request: need({ memoryBytes: GIB }),
      refused: 'memory',
      detail: 'needs 1 GiB memory, 512 MiB free',
    },
    {
      name: 'storage',
      node: { capacity: small },
      request: need({ storageBytes: 1.5 * GIB }),
      refused: 'storage',
      detail: 'needs 1.5 GiB storage, 1 GiB free',
    },
    {
      name: 'bandwidth',
      node: { capacity: small },
      request: need({ bandwidthBps: 20_000_000 }),
      refused: 'bandwidth',
      detail: 'needs 20 Mbit/s bandwidth, 1 Mbit/s free',
    },
    {
      name: 'gpu',
      node: { capacity: small },
      request: need({ gpus: 2 }),
      refused: 'gpu',
      detail: 'needs 2 GPUs, 1 free',
    },
    {
      name: 'no replicas allowed',
      node: { maxReplicas: 0 },
      refused: 'replicas',
      detail: 'holds 0 replicas of at most 0',
    },
  ],
};

describe.each(Object.entries(rows))('%s', (_group, group) => {
  it.each(group)('$name', ({ node = {}, request = {}, refused, detail }) => {
    const cluster = aCluster([aNode('n1', node)]);
    const [placement] = cluster.place(aRequest(request), 1);
    const [explanation] = cluster.explain(aRequest(request));
    expect(placement?.placed === false ? describeReasons(placement.reasons) : undefined).toBe(
      refused && `${refused}: 1 of 1 nodes`,
    );
    expect(explanation?.fits).toBe(refused === undefined);
    if (detail !== undefined) expect(explanation).toMatchObject({ detail });
  });
});

describe('the order of the filters', () => {
  // One node with everything wrong; each step repairs what the filter before complained of.
  const steps: readonly {
    readonly filter: PlacementFilter;
    readonly node?: Partial<SchedulerNode>;
    readonly request?: Partial<PlacementRequest>;
  }[] = [
    {
      filter: 'lost',
      node: { availability: { draining: true, cordoned: true, quarantined: true } },
    },
    { filter: 'draining', node: { availability: { cordoned: true, quarantined: true } } },
    { filter: 'cordoned', node: { availability: { quarantined: true } } },
    { filter: 'quarantined', node: { availability: {} } },
    { filter: 'region', node: { region: 'us' } },
    { filter: 'zone', node: { zone: 'z' } },
    { filter: 'capability', request: { capabilities: [] } },
    { filter: 'nodeSelector', request: { nodeSelector: {} } },
    { filter: 'nodeAffinity', request: { nodeAffinity: [] } },
    { filter: 'nodeAntiAffinity', request: { nodeAntiAffinity: [] } },
    { filter: 'taint', node: { taints: [] } },
    { filter: 'replicas', node: { maxReplicas: 9 } },
    {
      filter: 'cpu',
      request: need({ memoryBytes: 9e12, storageBytes: 9e12, bandwidthBps: 9e12, gpus: 9 }),
    },
    { filter: 'memory', request: need({ storageBytes: 9e12, bandwidthBps: 9e12, gpus: 9 }) },
    { filter: 'storage', request: need({ bandwidthBps: 9e12, gpus: 9 }) },
    { filter: 'bandwidth', request: need({ gpus: 9 }) },
    { filter: 'gpu', request: need({}) },
    { filter: 'hostPort', request: { hostPorts: [] } },
    { filter: 'workloadAffinity', request: { workloadAffinity: [] } },
    { filter: 'workloadAntiAffinity', request: { workloadAntiAffinity: [] } },
    { filter: 'spread', node: { labels: { rack: 'r1' } } },
  ];

  it('is that of PLACEMENT_FILTERS', () => {
    const hostPorts = [{ protocol: 'tcp', number: 80 }] as const;
    const held = aReservation('web-1', { hostPorts });
    const everywhere = { topology: 'node', mode: 'required' } as const;
    let node = aNode('n1', {
      availability: { lost: true, draining: true, cordoned: true, quarantined: true },
      taints: [dedicated],
      maxReplicas: 1,
    });
    let request = aRequest({
      regions: ['us'],
      zones: ['z'],
      capabilities: ['runtime.cri'],
      nodeSelector: { disk: 'ssd' },
      ...affinity('Exists', 'disk'),
      nodeAntiAffinity: [{ mode: 'required', requirements: [] }],
      resources: {
        cpuMillis: 9e12,
        memoryBytes: 9e12,
        storageBytes: 9e12,
        bandwidthBps: 9e12,
        gpus: 9,
      },
      hostPorts,
      workloadAffinity: [
        { ...everywhere, selector: [{ key: 'app', operator: 'In', values: ['cache'] }] },
      ],
      workloadAntiAffinity: [{ ...everywhere, selector: [] }],
      spread: { topology: 'rack', mode: 'required' },
    });
    const seen: (PlacementFilter | undefined)[] = [];
    for (const step of steps) {
      const [explanation] = aCluster([node], [held]).explain(request);
      seen.push(explanation?.fits === false ? explanation.filter : undefined);
      node = { ...node, ...step.node };
      request = { ...request, ...step.request };
    }
    expect(seen).toEqual(steps.map(({ filter }) => filter));
    expect(seen).toEqual(PLACEMENT_FILTERS);
    expect(placedOn(aCluster([node], [held]), request)).toEqual(['n1']);
  });
});

describe('reasons', () => {
  it('are counted once per node, most nodes first', () => {
    const tiny = { cpuMillis: 100, memoryBytes: GIB };
    const cluster = aCluster([
      aNode('n1', { capacity: tiny }),
      aNode('n2', { zone: 'b', capacity: tiny }),
      aNode('n3', { capacity: tiny }),
    ]);
    const [placement] = cluster.place(aRequest({ zones: ['a'] }), 1);
    expect(placement).toEqual({
      placed: false,
      reasons: [
        { filter: 'cpu', nodes: 2, of: 3 },
        { filter: 'zone', nodes: 1, of: 3 },
      ],
    });
    expect(placement?.placed === false && describeReasons(placement.reasons)).toBe(
      'cpu: 2 of 3 nodes, zone: 1 of 3 nodes',
    );
  });

  it('with equal counts come in the order of the filters, then of their details', () => {
    const cluster = aCluster([
      aNode('n1', { taints: [evicting] }),
      aNode('n2', { taints: [dedicated] }),
      aNode('n3', { zone: 'b' }),
    ]);
    const [placement] = cluster.place(aRequest({ zones: ['a'] }), 1);
    expect(placement?.placed === false && describeReasons(placement.reasons)).toBe(
      'zone: 1 of 3 nodes, taint dedicated=gpu:NoSchedule: 1 of 3 nodes, taint spot:NoExecute: 1 of 3 nodes',
    );
  });

  it('of an empty cluster are that it is empty', () => {
    const [placement] = aCluster([]).place(aRequest(), 1);
    expect(placement).toEqual({ placed: false, reasons: [] });
    expect(describeReasons([])).toBe('no nodes in the cluster');
  });

  it('count replicas that leave but are still there', () => {
    const request = aRequest();
    const cluster = aCluster(
      [aNode('n1', { maxReplicas: 1 })],
      [{ ...reservationFor(request, 'web-1', 'n1'), leaving: true }],
    );
    expect(placedOn(cluster, request)).toEqual([undefined]);
    expect(cluster.usage(toNodeId('n1'))).toMatchObject({
      replicas: 1,
      maxReplicas: 1,
      allocated: { cpuMillis: 500 },
    });
  });
});
