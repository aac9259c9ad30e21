import { toNodeId } from '@cloudless/base';
import {
  describeReasons,
  PLACEMENT_FILTERS,
  type PlacementFilter,
  type PlacementRequest,
  type SchedulerNode,
} from '../index.js';
import {
  aCluster,
  aNode,
  aRequest,
  aReservation,
  GIB,
  MIB,
  placedOn,
  reservationFor,
} from '../testing/builders.js';

interface Row {
  readonly name: string;
  readonly node?: Omit<SchedulerNode, 'id' | 'capacity'> & Partial<Pick<SchedulerNode, 'capacity'>>;
  readonly request?: Partial<PlacementRequest>;
  /** Expected text of `describeReasons` for the one node; absent when the node fits. */
  readonly refused?: string;
  /** Expected `detail` of `explain`. */
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
const needing = (amounts: Partial<PlacementRequest['resources']>): Partial<PlacementRequest> => ({
  resources: { cpuMillis: 0, memoryBytes: 0, ...amounts },
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
    { name: 'accepts a healthy node' },
    {
      name: 'excludes a lost node',
      node: { availability: { lost: true } },
      refused: 'lost',
      detail: 'the node is lost',
    },
    {
      name: 'excludes a draining node',
      node: { availability: { draining: true } },
      refused: 'being drained',
      detail: 'the node is being drained',
    },
    {
      name: 'excludes an unreachable node',
      node: { availability: { unreachable: true } },
      refused: 'unreachable',
      detail: 'the node is unreachable',
    },
    {
      name: 'excludes a cordoned node',
      node: { availability: { cordoned: true } },
      refused: 'cordoned',
      detail: 'the node is cordoned',
    },
    {
      name: 'excludes a quarantined node',
      node: { availability: { quarantined: true } },
      refused: 'quarantined',
      detail: 'the node is quarantined',
    },
    {
      name: 'reports all conditions of a cordoned and lost node, the gravest first',
      node: { availability: { cordoned: true, lost: true } },
      refused: 'lost: 1 of 1 nodes; cordoned',
    },
    {
      name: 'accepts a node with pressure conditions and an unavailable network',
      node: { conditions: { memoryPressure: true, diskPressure: true, networkUnavailable: true } },
    },
  ],
  locality: [
    { name: 'accepts a node in the second listed region', request: { regions: ['us', 'eu'] } },
    {
      name: 'excludes a node in another region',
      request: { regions: ['us'] },
      refused: 'not in region us',
      detail: 'is in region eu, needs us',
    },
    {
      name: 'excludes a node of unknown region',
      node: { region: '' },
      request: { regions: ['us', 'eu'] },
      refused: 'in none of the regions us, eu',
      detail: 'is in no region, needs one of us, eu',
    },
    { name: 'accepts a node in the zone', request: { zones: ['a'] } },
    {
      name: 'excludes a node in another zone',
      request: { zones: ['b', 'c'] },
      refused: 'in none of the zones b, c',
      detail: 'is in zone a, needs one of b, c',
    },
    {
      name: 'accepts another region and zone when locality is preferred',
      request: { regions: ['us'], zones: ['b'], locality: 'preferred' },
    },
  ],
  capability: [
    {
      name: 'accepts a node with all capabilities',
      node: { capabilities: ['runtime.cri', 'exec.tty'] },
      request: { capabilities: ['runtime.cri'] },
    },
    {
      name: 'excludes a node that lacks a capability',
      node: { capabilities: ['runtime.process'] },
      request: { capabilities: ['runtime.process', 'runtime.cri'] },
      refused: 'no container runtime',
      detail: 'no container runtime',
    },
    {
      name: 'accepts a node that allows a directory above the host path',
      node: { capabilities: ['volumes.hostpath', 'host-path./opt', 'host-path./srv'] },
      request: { capabilities: ['volumes.hostpath', 'host-path./srv/data'] },
    },
    {
      name: 'excludes a node that allows other host paths',
      node: { capabilities: ['volumes.hostpath', 'host-path./srv', 'host-path./opt'] },
      request: { capabilities: ['volumes.hostpath', 'host-path./srv2'] },
      refused:
        'does not allow the host path /srv2, only paths in /opt or /srv (--allow-host-path of its agent)',
      detail:
        'does not allow the host path /srv2, only paths in /opt or /srv (--allow-host-path of its agent)',
    },
    {
      name: 'excludes a node that allows no host path with one reason',
      node: { capabilities: [] },
      request: { capabilities: ['volumes.hostpath', 'host-path./srv'] },
      refused: 'cannot mount host paths',
      detail: 'cannot mount host paths',
    },
    {
      name: 'accepts a node of an earlier version, which does not say which host paths it allows',
      node: { capabilities: ['volumes.hostpath'] },
      request: { capabilities: ['volumes.hostpath', 'host-path./srv'] },
    },
    {
      name: 'excludes a node with a suspended capability that the request needs',
      node: { capabilities: ['runtime.cri'], suspendedCapabilities: ['runtime.cri'] },
      request: { capabilities: ['runtime.cri'] },
      refused: 'the container runtime is unavailable at the moment',
      detail: 'the container runtime is unavailable at the moment',
    },
    {
      name: 'gives the reason why a capability is suspended',
      node: {
        capabilities: ['runtime.process'],
        suspendedCapabilities: ['runtime.process'],
        suspensionReason: 'the disk of the node is full',
      },
      request: { capabilities: ['runtime.process'] },
      refused: 'the disk of the node is full',
      detail: 'the disk of the node is full',
    },
    {
      name: 'accepts a node with a suspended capability that the request does not need',
      node: {
        capabilities: ['runtime.process', 'runtime.cri'],
        suspendedCapabilities: ['runtime.cri'],
      },
      request: { capabilities: ['runtime.process'] },
    },
    {
      name: 'names all missing capabilities, a missing runtime first',
      request: { capabilities: ['runtime.cri', 'exec.tty'] },
      refused: 'no container runtime: 1 of 1 nodes; lacks the capability exec.tty',
    },
  ],
  'node selector': [
    {
      name: 'accepts a node with the label and value',
      node: labelled,
      request: { nodeSelector: { disk: 'ssd' } },
    },
    {
      name: 'excludes a node with another value of the label',
      node: labelled,
      request: { nodeSelector: { disk: 'nvme' } },
      refused: 'lacks the label disk=nvme',
      detail: 'lacks the label disk=nvme',
    },
    {
      name: 'excludes a node without a label whose key is a property of every JavaScript object',
      node: labelled,
      request: { nodeSelector: { constructor: 'x' } },
      refused: 'lacks the label constructor=x',
    },
  ],
  'node affinity': [
    {
      name: 'In accepts a listed value',
      node: labelled,
      request: affinity('In', 'disk', 'nvme', 'ssd'),
    },
    {
      name: 'In excludes another value',
      node: labelled,
      request: affinity('In', 'disk', 'nvme', 'hdd'),
      refused: 'does not meet disk in (hdd, nvme)',
      detail: 'does not meet disk in (hdd, nvme)',
    },
    {
      name: 'In excludes a node without the label',
      request: affinity('In', 'disk', 'ssd'),
      refused: 'does not meet disk in (ssd)',
    },
    {
      name: 'NotIn accepts another value',
      node: labelled,
      request: affinity('NotIn', 'disk', 'hdd'),
    },
    {
      name: 'NotIn excludes a listed value',
      node: labelled,
      request: affinity('NotIn', 'disk', 'ssd'),
      refused: 'does not meet disk not in (ssd)',
    },
    { name: 'NotIn accepts a node without the label', request: affinity('NotIn', 'disk', 'ssd') },
    { name: 'Exists accepts any value', node: labelled, request: affinity('Exists', 'disk') },
    {
      name: 'Exists excludes a node without the label',
      request: affinity('Exists', 'disk'),
      refused: 'does not meet disk exists',
    },
    {
      name: 'Exists excludes a node without a label whose key is a property of every object',
      request: affinity('Exists', 'toString'),
      refused: 'does not meet toString exists',
    },
    {
      name: 'DoesNotExist accepts a node without the label',
      request: affinity('DoesNotExist', 'disk'),
    },
    {
      name: 'DoesNotExist excludes a node with the label',
      node: labelled,
      request: affinity('DoesNotExist', 'disk'),
      refused: 'does not meet disk does not exist',
    },
    { name: 'Gt accepts a larger value', node: labelled, request: affinity('Gt', 'cores', '7') },
    {
      name: 'Gt excludes an equal value',
      node: labelled,
      request: affinity('Gt', 'cores', '8'),
      refused: 'does not meet cores > 8',
    },
    {
      name: 'Gt compares numbers, not strings',
      node: { labels: { cores: '10' } },
      request: affinity('Gt', 'cores', '9'),
    },
    { name: 'Lt accepts a smaller value', node: labelled, request: affinity('Lt', 'cores', '9') },
    {
      name: 'Lt excludes an equal value',
      node: labelled,
      request: affinity('Lt', 'cores', '8'),
      refused: 'does not meet cores < 8',
    },
    {
      name: 'Lt excludes a value that is not a number',
      node: labelled,
      request: affinity('Lt', 'disk', '8'),
      refused: 'does not meet disk < 8',
    },
    {
      name: 'excludes a node when one of two terms does not match',
      node: labelled,
      request: {
        nodeAffinity: [
          ...(affinity('Exists', 'disk').nodeAffinity ?? []),
          ...(affinity('Exists', 'gpu').nodeAffinity ?? []),
        ],
      },
      refused: 'does not meet gpu exists',
    },
    {
      name: 'preferred terms exclude no node',
      request: {
        nodeAffinity: [
          { mode: 'preferred', weight: 100, requirements: [{ key: 'disk', operator: 'Exists' }] },
        ],
      },
    },
  ],
  'node anti-affinity': [
    {
      name: 'excludes a node that meets all requirements of a term',
      node: labelled,
      request: {
        nodeAntiAffinity: [
          { mode: 'required', requirements: [{ key: 'disk', operator: 'Exists' }] },
        ],
      },
      refused: 'matches the anti-affinity disk exists',
      detail: 'matches the anti-affinity disk exists',
    },
    {
      name: 'accepts a node that meets one of two requirements of a term',
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
      name: 'preferred terms exclude no node',
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
      name: 'NoSchedule excludes the node',
      node: { taints: [dedicated] },
      refused: 'has the taint dedicated=gpu:NoSchedule, which is not tolerated',
      detail: 'has the taint dedicated=gpu:NoSchedule, which is not tolerated',
    },
    {
      name: 'NoExecute excludes the node',
      node: { taints: [evicting] },
      refused: 'has the taint spot:NoExecute, which is not tolerated',
    },
    {
      name: 'PreferNoSchedule excludes no node',
      node: { taints: [{ key: 'old', effect: 'PreferNoSchedule' }] },
    },
    {
      name: 'Equal tolerates a taint with the same value',
      node: { taints: [dedicated] },
      request: {
        tolerations: [{ key: 'dedicated', operator: 'Equal', value: 'gpu', effect: 'NoSchedule' }],
      },
    },
    {
      name: 'Equal does not tolerate a taint with another value',
      node: { taints: [dedicated] },
      request: { tolerations: [{ key: 'dedicated', operator: 'Equal', value: 'db' }] },
      refused: 'has the taint dedicated=gpu:NoSchedule, which is not tolerated',
    },
    {
      name: 'Equal tolerates a taint when neither side has a value',
      node: { taints: [evicting] },
      request: { tolerations: [{ key: 'spot', operator: 'Equal' }] },
    },
    {
      name: 'Exists tolerates any value',
      node: { taints: [dedicated] },
      request: { tolerations: [{ key: 'dedicated', operator: 'Exists' }] },
    },
    {
      name: 'Exists does not tolerate another key',
      node: { taints: [dedicated] },
      request: { tolerations: [{ key: 'spot', operator: 'Exists' }] },
      refused: 'has the taint dedicated=gpu:NoSchedule, which is not tolerated',
    },
    {
      name: 'Exists does not tolerate another effect',
      node: { taints: [dedicated] },
      request: { tolerations: [{ key: 'dedicated', operator: 'Exists', effect: 'NoExecute' }] },
      refused: 'has the taint dedicated=gpu:NoSchedule, which is not tolerated',
    },
    {
      name: 'Exists without a key tolerates every taint',
      node: { taints: [dedicated, evicting] },
      request: { tolerations: [{ key: '', operator: 'Exists', effect: '' }] },
    },
    {
      name: 'Exists without a key tolerates only its effect',
      node: { taints: [dedicated, evicting] },
      request: { tolerations: [{ operator: 'Exists', effect: 'NoSchedule' }] },
      refused: 'has the taint spot:NoExecute, which is not tolerated',
    },
  ],
  capacity: [
    {
      name: 'accepts a request for the whole node',
      node: { capacity: small },
      request: needing(small),
    },
    {
      name: 'excludes a node with too little CPU',
      node: { capacity: small },
      request: needing({ cpuMillis: 1_001 }),
      refused: 'needs 1001m CPU, more than the node has',
      detail: 'needs 1001m CPU, the node has 1',
    },
    {
      name: 'excludes a node when the system reservation leaves too little CPU',
      node: { capacity: small, systemReserved: { cpuMillis: 800, memoryBytes: 0 } },
      request: needing({ cpuMillis: 500 }),
      refused: 'needs 500m CPU, more than the node has',
      detail: 'needs 500m CPU, the node has 200m',
    },
    {
      name: 'excludes a node with too little memory',
      node: { capacity: small },
      request: needing({ memoryBytes: 2 * GIB }),
      refused: 'needs 2Gi memory, more than the node has',
      detail: 'needs 2Gi memory, the node has 1Gi',
    },
    {
      name: 'excludes a node that lacks one byte of memory',
      node: { capacity: small },
      request: needing({ memoryBytes: GIB + 1 }),
      refused: 'needs 1073741825 memory, more than the node has',
      detail: 'needs 1073741825 bytes memory, the node has 1073741824 bytes',
    },
    {
      name: 'excludes a node when the system reservation leaves too little memory',
      node: { capacity: small, systemReserved: { cpuMillis: 0, memoryBytes: 512 * MIB } },
      request: needing({ memoryBytes: GIB }),
      refused: 'needs 1Gi memory, more than the node has',
      detail: 'needs 1Gi memory, the node has 512Mi',
    },
    {
      name: 'excludes a node with too little storage',
      node: { capacity: small },
      request: needing({ storageBytes: 1.5 * GIB }),
      refused: 'needs 1536Mi storage, more than the node has',
      detail: 'needs 1.5Gi storage, the node has 1Gi',
    },
    {
      name: 'excludes a node with too little bandwidth',
      node: { capacity: small },
      request: needing({ bandwidthBps: 20_000_000 }),
      refused: 'needs 20 Mbit/s bandwidth, more than the node has',
      detail: 'needs 20 Mbit/s bandwidth, the node has 1 Mbit/s',
    },
    {
      name: 'excludes a node with too few GPUs',
      node: { capacity: small },
      request: needing({ gpus: 2 }),
      refused: 'needs 2 GPUs, more than the node has',
      detail: 'needs 2 GPUs, the node has 1',
    },
    {
      name: 'excludes a node that allows no replicas',
      node: { maxReplicas: 0 },
      refused: 'holds its largest number of replicas',
      detail: 'holds 0 replicas of at most 0',
    },
  ],
};

describe.each(Object.entries(rows))('filter %s', (_group, group) => {
  it.each(group)('$name', ({ node = {}, request = {}, refused, detail }) => {
    const cluster = aCluster([aNode('n1', node)]);
    const [placement] = cluster.place(aRequest(request), 1);
    const [explanation] = cluster.explain(aRequest(request));
    expect(placement?.placed === false ? describeReasons(placement.reasons) : undefined).toBe(
      refused && `${refused}: 1 of 1 nodes`,
    );
    expect(explanation?.fits).toBe(refused === undefined);
    if (detail !== undefined) expect(explanation).toMatchObject({ reasons: [{ text: detail }] });
  });
});

describe('all failing filters of a node', () => {
  const licenses = { custom: { license: 9 } };
  const gpus = { gpus: 9, ...licenses };
  // Each step repairs one filter of a node on which every filter fails.
  const steps: readonly {
    readonly filter: PlacementFilter;
    readonly node?: Partial<SchedulerNode>;
    readonly request?: Partial<PlacementRequest>;
  }[] = [
    {
      filter: 'lost',
      node: {
        availability: { unreachable: true, draining: true, cordoned: true, quarantined: true },
      },
    },
    {
      filter: 'unreachable',
      node: { availability: { draining: true, cordoned: true, quarantined: true } },
    },
    { filter: 'draining', node: { availability: { cordoned: true, quarantined: true } } },
    { filter: 'cordoned', node: { availability: { quarantined: true } } },
    { filter: 'quarantined', node: { availability: {} } },
    { filter: 'region', node: { region: 'us' } },
    { filter: 'zone', node: { zone: 'z' } },
    { filter: 'capability', request: { capabilities: ['exec.tty'] } },
    { filter: 'nodeSelector', request: { nodeSelector: {} } },
    { filter: 'nodeAffinity', request: { nodeAffinity: [] } },
    { filter: 'nodeAntiAffinity', request: { nodeAntiAffinity: [] } },
    { filter: 'suspendedCapability', node: { suspendedCapabilities: [] } },
    { filter: 'taint', node: { taints: [] } },
    { filter: 'replicas', node: { maxReplicas: 9 } },
    {
      filter: 'cpu',
      request: needing({ memoryBytes: 9e12, storageBytes: 9e12, bandwidthBps: 9e12, ...gpus }),
    },
    { filter: 'memory', request: needing({ storageBytes: 9e12, bandwidthBps: 9e12, ...gpus }) },
    { filter: 'storage', request: needing({ bandwidthBps: 9e12, ...gpus }) },
    { filter: 'bandwidth', request: needing(gpus) },
    { filter: 'gpu', request: needing(licenses) },
    { filter: 'customResource', request: needing({}) },
    { filter: 'hostPort', request: { hostPorts: [] } },
    { filter: 'workloadAffinity', request: { workloadAffinity: [] } },
    { filter: 'workloadAntiAffinity', request: { workloadAntiAffinity: [] } },
    { filter: 'spread', node: { labels: { rack: 'r1' } } },
  ];

  it('are reported until each is repaired, in the order of PLACEMENT_FILTERS', () => {
    const hostPorts = [{ protocol: 'tcp', number: 80 }] as const;
    const held = aReservation('web-1', { hostPorts });
    const everywhere = { topology: 'node', mode: 'required' } as const;
    let node = aNode('n1', {
      availability: {
        ...{ lost: true, unreachable: true },
        ...{ draining: true, cordoned: true, quarantined: true },
      },
      capabilities: ['exec.tty'],
      suspendedCapabilities: ['exec.tty'],
      taints: [dedicated],
      maxReplicas: 1,
    });
    let request = aRequest({
      regions: ['us'],
      zones: ['z'],
      capabilities: ['runtime.cri', 'exec.tty'],
      nodeSelector: { disk: 'ssd' },
      ...affinity('Exists', 'disk'),
      nodeAntiAffinity: [{ mode: 'required', requirements: [] }],
      resources: {
        cpuMillis: 9e12,
        memoryBytes: 9e12,
        storageBytes: 9e12,
        bandwidthBps: 9e12,
        ...gpus,
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
      const failing = explanation?.fits === false ? explanation.reasons : [];
      seen.push(PLACEMENT_FILTERS.find((name) => failing.some(({ filter }) => filter === name)));
      node = { ...node, ...step.node };
      request = { ...request, ...step.request };
    }
    expect(seen).toEqual(steps.map(({ filter }) => filter));
    expect(seen).toEqual(PLACEMENT_FILTERS);
    expect(placedOn(aCluster([node], [held]), request)).toEqual(['n1']);
  });
});

describe('reasons of a refusal', () => {
  it('count a node under each of its failures, most nodes first', () => {
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
        {
          filter: 'cpu',
          lasting: true,
          text: 'needs 500m CPU, more than the node has',
          nodes: 3,
          of: 3,
        },
        { filter: 'zone', lasting: true, text: 'not in zone a', nodes: 1, of: 3 },
      ],
    });
    expect(placement?.placed === false && describeReasons(placement.reasons)).toBe(
      'needs 500m CPU, more than the node has: 3 of 3 nodes; not in zone a: 1 of 3 nodes',
    );
  });

  it('follow the order of the filters, then of their details, when their counts are equal', () => {
    const cluster = aCluster([
      aNode('n1', { taints: [evicting] }),
      aNode('n2', { taints: [dedicated] }),
      aNode('n3', { zone: 'b' }),
    ]);
    const [placement] = cluster.place(aRequest({ zones: ['a'] }), 1);
    expect(placement?.placed === false && describeReasons(placement.reasons)).toBe(
      'not in zone a: 1 of 3 nodes; has the taint dedicated=gpu:NoSchedule, which is not tolerated: 1 of 3 nodes; has the taint spot:NoExecute, which is not tolerated: 1 of 3 nodes',
    );
  });

  it('name lasting reasons before temporary ones, and a missing runtime before its limits', () => {
    const cluster = aCluster([
      aNode('n1', { zone: 'b', availability: { cordoned: true }, capabilities: [] }),
    ]);
    const request = aRequest({ zones: ['a'], capabilities: ['limits.cpu', 'runtime.cri'] });
    expect(cluster.explain(request)).toMatchObject([
      {
        fits: false,
        reasons: [
          { filter: 'capability', lasting: true, text: 'no container runtime' },
          { filter: 'zone', lasting: true, text: 'is in zone b, needs a' },
          { filter: 'capability', lasting: true, text: 'cannot limit CPU' },
          { filter: 'cordoned', lasting: false, text: 'the node is cordoned' },
        ],
      },
    ]);
  });

  it('call a shortage lasting only when the request is larger than the node', () => {
    const cluster = aCluster(
      [aNode('n1', { capacity: { cpuMillis: 1_000, memoryBytes: 32 * GIB } })],
      [aReservation('db-1', { resources: { cpuMillis: 800, memoryBytes: 0 } })],
    );
    const request = aRequest({ resources: { cpuMillis: 500, memoryBytes: 100 * GIB } });
    expect(cluster.explain(request)).toMatchObject([
      {
        reasons: [
          { filter: 'memory', lasting: true, text: 'needs 100Gi memory, the node has 32Gi' },
          { filter: 'cpu', lasting: false, text: 'needs 500m CPU, 200m free' },
        ],
      },
    ]);
    const [placement] = cluster.place(request, 1);
    expect(placement?.placed === false && describeReasons(placement.reasons)).toBe(
      'needs 100Gi memory, more than the node has: 1 of 1 nodes; needs 500m CPU, more than is free: 1 of 1 nodes',
    );
  });

  it('are cut after six reasons', () => {
    const labels = Object.fromEntries('abcdefgh'.split('').map((key) => [key, '1']));
    const [placement] = aCluster([aNode('n1')]).place(aRequest({ nodeSelector: labels }), 1);
    expect(placement?.placed === false && describeReasons(placement.reasons)).toMatch(
      /lacks the label f=1: 1 of 1 nodes; 2 more reasons$/,
    );
  });

  it('say that the cluster has no nodes when the cluster is empty', () => {
    const [placement] = aCluster([]).place(aRequest(), 1);
    expect(placement).toEqual({ placed: false, reasons: [] });
    expect(describeReasons([])).toBe('no nodes in the cluster');
  });

  it('are given for a node whose only place a leaving replica holds', () => {
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
