import { InvalidInputError } from '@cloudless/base';
import {
  createCluster,
  DEFAULT_WEIGHTS,
  normaliseWeights,
  type PlacementRequest,
  type ScoreTerms,
  type ScoreWeights,
  type SchedulerNode,
} from '../index.js';
import { aCluster, aNode, aRequest, aReservation } from '../testing/builders.js';

type NodeChanges = Partial<SchedulerNode>;
type RequestChanges = Partial<PlacementRequest>;

/**
 * A machine with 1000 m CPU and 1000 bytes of memory, so that amounts are shares in thousandths.
 */
const thousandths = {
  cpuMillis: 1_000,
  memoryBytes: 1_000,
  storageBytes: 0,
  bandwidthBps: 1_000,
  gpus: 0,
};
const shares = (cpuMillis: number, memoryBytes: number): RequestChanges => ({
  resources: { cpuMillis, memoryBytes },
});

/** Returns the explanation of one node for one request, beside the resources of another workload. */
function explainNode(
  node: NodeChanges,
  request: RequestChanges,
  reserved?: { cpuMillis: number; memoryBytes: number; bandwidthBps?: number },
) {
  const others =
    reserved === undefined
      ? []
      : [aReservation('other-1', { resources: reserved, labels: { app: 'other' } })];
  const [explanation] = aCluster([aNode('n1', { capacity: thousandths, ...node })], others).explain(
    aRequest({ ...shares(100, 100), ...request }),
  );
  if (explanation === undefined) throw new Error('the node is missing from the explanation');
  return explanation;
}

describe('score term locality', () => {
  it.each<{ name: string; node?: NodeChanges; request: RequestChanges; expected: number }>([
    { name: 'no region or zone is requested', request: {}, expected: 0.7 },
    { name: 'the node is in the first region', request: { regions: ['eu', 'us'] }, expected: 1 },
    { name: 'the node is in the second region', request: { regions: ['us', 'eu'] }, expected: 0.9 },
    {
      name: 'the node is in the fourth region',
      request: { regions: ['us', 'as', 'af', 'eu'] },
      expected: 0.7,
    },
    { name: 'the node is in no requested region', request: { regions: ['us'] }, expected: 0.5 },
    {
      name: 'the node is in a requested zone and no region is requested',
      request: { zones: ['a'] },
      expected: 0.9,
    },
    {
      name: 'the node is in no requested zone and no region is requested',
      request: { zones: ['b'] },
      expected: 0.5,
    },
    {
      name: 'region and zone match, clamped to 1',
      request: { regions: ['eu'], zones: ['a'] },
      expected: 1,
    },
    {
      name: 'the second region matches and the zone does not',
      request: { regions: ['us', 'eu'], zones: ['b'] },
      expected: 0.7,
    },
    {
      name: 'neither region nor zone matches',
      request: { regions: ['us'], zones: ['b'] },
      expected: 0.3,
    },
    {
      name: 'the tenth region matches and the zone does not, clamped to 0',
      request: { regions: [...'123456789', 'eu'], zones: ['b'] },
      expected: 0,
    },
  ])('is $expected when $name', ({ node = {}, request, expected }) => {
    expect(explainNode(node, { locality: 'preferred', ...request }).terms.locality).toBeCloseTo(
      expected,
      12,
    );
  });
});

describe('score term reliability', () => {
  it.each<{ name: string; node: NodeChanges; expected: number }>([
    { name: 'the reliability is absent', node: {}, expected: 1 },
    { name: 'the reliability is 0.75', node: { reliability: 0.75 }, expected: 0.75 },
    {
      name: 'memory is under pressure',
      node: { conditions: { memoryPressure: true } },
      expected: 0.8,
    },
    {
      name: 'memory and disk are under pressure',
      node: { conditions: { memoryPressure: true, diskPressure: true } },
      expected: 0.6,
    },
    {
      name: 'the network is unavailable',
      node: { conditions: { networkUnavailable: true } },
      expected: 0.6,
    },
    {
      name: 'all conditions are true, clamped to 0',
      node: {
        reliability: 0.5,
        conditions: { memoryPressure: true, diskPressure: true, networkUnavailable: true },
      },
      expected: 0,
    },
  ])('is $expected when $name', ({ node, expected }) => {
    expect(explainNode(node, {}).terms.reliability).toBeCloseTo(expected, 12);
  });
});

describe('score term cost', () => {
  it.each<{ name: string; node?: NodeChanges; request: RequestChanges; expected: number }>([
    { name: 'the mean share is 0.099', request: shares(99, 99), expected: 0.7 },
    { name: 'the mean share is 0.1', request: shares(100, 100), expected: 1 },
    { name: 'the mean of unequal shares is 0.2', request: shares(400, 0), expected: 1 },
    { name: 'the mean share is 0.3', request: shares(300, 300), expected: 0.8 },
    { name: 'the mean share is 0.5', request: shares(500, 500), expected: 0.6 },
    { name: 'the mean share is 0.7', request: shares(700, 700), expected: 0.3 },
    {
      name: 'the share is 0.2 of the whole machine and 0.4 of the allocatable part',
      node: { systemReserved: { cpuMillis: 500, memoryBytes: 500 } },
      request: shares(200, 200),
      expected: 1,
    },
    {
      name: 'the node has a GPU and none is requested',
      node: { capacity: { ...thousandths, gpus: 1 } },
      request: shares(100, 100),
      expected: 0.7,
    },
    {
      name: 'the node has a GPU that is requested',
      node: { capacity: { ...thousandths, gpus: 1 } },
      request: { resources: { cpuMillis: 100, memoryBytes: 100, gpus: 1 } },
      expected: 1,
    },
    {
      name: 'the node has a GPU, none is requested, and the share is 0.7',
      node: { capacity: { ...thousandths, gpus: 1 } },
      request: shares(700, 700),
      expected: 0,
    },
  ])('is $expected when $name', ({ node = {}, request, expected }) => {
    expect(explainNode(node, request).terms.cost).toBeCloseTo(expected, 12);
  });
});

describe('score term utilisation', () => {
  it.each<{
    name: string;
    node?: NodeChanges;
    request: RequestChanges;
    reserved?: { cpuMillis: number; memoryBytes: number };
    expected: number;
  }>([
    { name: 'the utilisation is the target', request: shares(650, 650), expected: 1 },
    { name: 'a tenth of the machine is used', request: shares(100, 100), expected: 0.45 },
    {
      name: 'the utilisation with reservations is 0.55',
      request: shares(100, 100),
      reserved: { cpuMillis: 450, memoryBytes: 450 },
      expected: 0.9,
    },
    {
      name: 'the utilisation with the system reservation is 0.55',
      node: { systemReserved: { cpuMillis: 450, memoryBytes: 450 } },
      request: shares(100, 100),
      expected: 0.9,
    },
    {
      name: 'the distances of the CPU and memory share from the target are 0.4 and 0',
      request: shares(250, 650),
      expected: 0.8,
    },
    {
      name: 'the imbalance shrinks',
      request: shares(100, 300),
      reserved: { cpuMillis: 400, memoryBytes: 200 },
      expected: 0.95,
    },
    {
      name: 'the imbalance changes sides and grows',
      request: shares(0, 500),
      reserved: { cpuMillis: 400, memoryBytes: 200 },
      expected: 0.85,
    },
    {
      name: 'the imbalance stays',
      request: shares(100, 100),
      reserved: { cpuMillis: 200, memoryBytes: 100 },
      expected: 0.6,
    },
    { name: 'both shares are exactly 0.9', request: shares(900, 900), expected: 0.75 },
    { name: 'one share is above 0.9', request: shares(910, 650), expected: 0.57 },
    { name: 'both shares are above 0.9', request: shares(950, 950), expected: 0.4 },
    { name: 'more than the capacity is requested', request: shares(1_001, 100), expected: 0 },
    {
      name: 'memory is requested on a node without memory',
      node: { capacity: { ...thousandths, memoryBytes: 0 } },
      request: shares(650, 1),
      expected: 0,
    },
    {
      name: 'the imbalance shrinks to the target, clamped to 1',
      request: shares(0, 250),
      reserved: { cpuMillis: 650, memoryBytes: 400 },
      expected: 1,
    },
  ])('is $expected when $name', ({ node = {}, request, reserved, expected }) => {
    expect(explainNode(node, request, reserved).terms.utilisation).toBeCloseTo(expected, 12);
  });
});

describe('score term networkPenalty', () => {
  const needs = (bandwidthBps: number): RequestChanges => ({
    resources: { cpuMillis: 100, memoryBytes: 100, bandwidthBps },
  });
  it.each<{
    name: string;
    node?: NodeChanges;
    request: RequestChanges;
    reserved?: { cpuMillis: number; memoryBytes: number; bandwidthBps: number };
    expected: number;
  }>([
    { name: 'no bandwidth is requested', request: {}, expected: 0 },
    { name: 'the bandwidth is enough', request: needs(1_000), expected: 0 },
    { name: 'half of the bandwidth is missing', request: needs(2_000), expected: 0.25 },
    {
      name: 'others reserve half of the bandwidth',
      request: needs(1_000),
      reserved: { cpuMillis: 0, memoryBytes: 0, bandwidthBps: 500 },
      expected: 0.25,
    },
    {
      name: 'the node has no bandwidth',
      node: { capacity: { ...thousandths, bandwidthBps: 0 } },
      request: needs(1_000),
      expected: 0.5,
    },
    {
      name: 'the network is unavailable',
      node: { conditions: { networkUnavailable: true } },
      request: {},
      expected: 1,
    },
    { name: 'the region does not match', request: { regions: ['us'] }, expected: 0.2 },
    { name: 'the region matches', request: { regions: ['us', 'eu'] }, expected: 0 },
    { name: 'only the zone does not match', request: { zones: ['b'] }, expected: 0 },
    {
      name: 'the region does not match and a fifth of the requested bandwidth is missing',
      request: { ...needs(1_250), regions: ['us'] },
      expected: 0.3,
    },
    {
      name: 'network, bandwidth and region are missing, clamped to 1',
      node: { conditions: { networkUnavailable: true } },
      request: { ...needs(2_000), regions: ['us'] },
      expected: 1,
    },
  ])('is $expected when $name', ({ node = {}, request, reserved, expected }) => {
    expect(
      explainNode(node, { locality: 'preferred', ...request }, reserved).terms.networkPenalty,
    ).toBeCloseTo(expected, 12);
  });
});

describe('score terms of preferences', () => {
  const nodes = (weight: number, key: string) =>
    ({ mode: 'preferred', weight, requirements: [{ key, operator: 'Exists' }] }) as const;
  const workloads = (weight: number, app: string) =>
    ({
      mode: 'preferred',
      weight,
      selector: [{ key: 'app', operator: 'In', values: [app] }],
      topology: 'zone',
    }) as const;
  const labels = { ssd: 'yes', gpu: 'yes' };
  it.each<{
    name: string;
    node?: NodeChanges;
    request: RequestChanges;
    expected: Partial<ScoreTerms>;
  }>([
    {
      name: 'there are no preferences',
      request: {},
      expected: { affinity: 0, antiAffinity: 0, taints: 0 },
    },
    {
      name: 'a node affinity term matches',
      node: { labels },
      request: { nodeAffinity: [nodes(100, 'ssd')] },
      expected: { affinity: 0.2 },
    },
    {
      name: 'no node affinity term matches',
      node: { labels },
      request: { nodeAffinity: [nodes(100, 'tpu')] },
      expected: { affinity: 0 },
    },
    {
      name: 'two node affinity terms match',
      node: { labels },
      request: { nodeAffinity: [nodes(50, 'ssd'), nodes(25, 'gpu')] },
      expected: { affinity: 0.15 },
    },
    {
      name: 'a node anti-affinity term matches',
      node: { labels },
      request: { nodeAntiAffinity: [nodes(50, 'ssd')] },
      expected: { antiAffinity: -0.15 },
    },
    {
      name: 'a workload affinity term matches a replica',
      request: { workloadAffinity: [workloads(50, 'other')] },
      expected: { affinity: 0.1 },
    },
    {
      name: 'no replica matches the workload affinity term',
      request: { workloadAffinity: [workloads(50, 'cache')] },
      expected: { affinity: 0 },
    },
    {
      name: 'a workload has affinity to itself and no replica',
      request: { workloadAffinity: [workloads(50, 'web')] },
      expected: { affinity: 0 },
    },
    {
      name: 'a workload anti-affinity term matches a replica',
      request: { workloadAntiAffinity: [workloads(100, 'other')] },
      expected: { antiAffinity: -0.3 },
    },
    {
      name: 'no replica matches the workload anti-affinity term',
      request: { workloadAntiAffinity: [workloads(100, 'cache')] },
      expected: { antiAffinity: 0 },
    },
    {
      name: 'one of two taints is tolerated',
      node: {
        taints: [
          { key: 'old', effect: 'PreferNoSchedule' },
          { key: 'far', effect: 'PreferNoSchedule' },
        ],
      },
      request: { tolerations: [{ key: 'old', operator: 'Exists' }] },
      expected: { taints: -0.1 },
    },
    {
      name: 'two taints are not tolerated',
      node: {
        taints: [
          { key: 'old', effect: 'PreferNoSchedule' },
          { key: 'far', effect: 'PreferNoSchedule' },
        ],
      },
      request: {},
      expected: { taints: -0.2 },
    },
  ])('are $expected when $name', ({ node = {}, request, expected }) => {
    const { terms } = explainNode(node, request, { cpuMillis: 0, memoryBytes: 0 });
    for (const [name, value] of Object.entries(expected))
      expect(terms[name as keyof ScoreTerms]).toBeCloseTo(value, 12);
  });
});

describe('total score', () => {
  it('is the weighted sum plus the preferences', () => {
    const { score, terms } = explainNode(
      { reliability: 0.5, taints: [{ key: 'old', effect: 'PreferNoSchedule' }] },
      { regions: ['us'], locality: 'preferred' },
    );
    // locality 0.5, reliability 0.5, cost 1, utilisation 0.45, penalty 0.2, taints −0.1
    expect(terms).toMatchObject({ locality: 0.5, reliability: 0.5, cost: 1 });
    expect(score).toBeCloseTo(0.25 * 0.5 + 0.3 * 0.5 + 0.15 * 1 + 0.2 * 0.45 - 0.1 * 0.2 - 0.1, 12);
  });

  it('is the same in place and explain when a replica is placed', () => {
    const cluster = aCluster([aNode('n1'), aNode('n2', { reliability: 0.5 })]);
    const [placement] = cluster.place(aRequest(), 1);
    expect(cluster.explain(aRequest())[0]).toMatchObject({
      nodeId: 'n1',
      score: placement?.placed && placement.score,
      terms: placement?.placed && placement.terms,
    });
  });

  it('does not depend on other nodes', () => {
    const alone = aCluster([aNode('n1')]).explain(aRequest());
    const withOthers = aCluster([
      aNode('n1'),
      aNode('n2', { reliability: 0.1 }),
      aNode('n3', { region: 'us' }),
    ]).explain(aRequest());
    expect(withOthers.find(({ nodeId }) => nodeId === 'n1')).toEqual(alone[0]);
  });

  it('prefers the fuller of two nodes that fit', () => {
    const full = aReservation('other-1', {
      nodeId: aNode('n2').id,
      workloadId: 'other' as never,
      resources: { cpuMillis: 1_000, memoryBytes: 2 ** 31 },
    });
    expect(aCluster([aNode('n1'), aNode('n2')], [full]).place(aRequest(), 1)).toMatchObject([
      { nodeId: 'n2' },
    ]);
  });
});

describe('score weights', () => {
  it('are normalised to sum 1', () => {
    expect(
      normaliseWeights({ locality: 2, reliability: 2, cost: 2, utilisation: 2, networkPenalty: 2 }),
    ).toEqual({
      locality: 0.2,
      reliability: 0.2,
      cost: 0.2,
      utilisation: 0.2,
      networkPenalty: 0.2,
    });
    const defaults = normaliseWeights(DEFAULT_WEIGHTS);
    expect(Object.values(defaults).reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 12);
    for (const name of Object.keys(defaults) as (keyof ScoreWeights)[])
      expect(defaults[name]).toBeCloseTo(DEFAULT_WEIGHTS[name], 12);
  });

  it('are normalised when they are very large', () => {
    const huge = normaliseWeights({
      locality: Number.MAX_VALUE,
      reliability: Number.MAX_VALUE,
      cost: 0,
      utilisation: 0,
      networkPenalty: 0,
    });
    expect(huge).toMatchObject({ locality: 0.5, reliability: 0.5, cost: 0 });
  });

  it('decide which node is chosen', () => {
    const nodes = [
      aNode('near', { region: 'eu', reliability: 0.1 }),
      aNode('sound', { region: 'us', reliability: 1 }),
    ];
    const request = aRequest({ regions: ['eu'], locality: 'preferred' });
    const only = { locality: 0, reliability: 0, cost: 0, utilisation: 0, networkPenalty: 0 };
    expect(
      aCluster(nodes, [], { weights: { ...only, locality: 1 } }).place(request, 1),
    ).toMatchObject([{ nodeId: 'near', score: 1 }]);
    expect(
      aCluster(nodes, [], { weights: { ...only, reliability: 7 } }).place(request, 1),
    ).toMatchObject([{ nodeId: 'sound', score: 1 }]);
  });

  it.each<{ name: string; weights: Partial<ScoreWeights>; field: string }>([
    { name: 'a weight is negative', weights: { cost: -0.1 }, field: 'weights.cost' },
    {
      name: 'a weight is not a number',
      weights: { locality: Number.NaN },
      field: 'weights.locality',
    },
    {
      name: 'a weight is infinite',
      weights: { networkPenalty: Infinity },
      field: 'weights.networkPenalty',
    },
    {
      name: 'all weights are zero',
      weights: { locality: 0, reliability: 0, cost: 0, utilisation: 0, networkPenalty: 0 },
      field: 'weights',
    },
  ])('are rejected when $name', ({ weights, field }) => {
    let thrown: unknown;
    try {
      createCluster({ weights: { ...DEFAULT_WEIGHTS, ...weights } });
    } catch (reason) {
      thrown = reason;
    }
    expect(thrown).toBeInstanceOf(InvalidInputError);
    expect(thrown).toMatchObject({ kind: 'invalid', violations: [{ field }] });
  });
});
