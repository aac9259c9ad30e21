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

type NodeGiven = Partial<SchedulerNode>;
type RequestGiven = Partial<PlacementRequest>;

/**
 * A machine with 1000 m CPU and 1000 bytes of memory, so that amounts are shares in thousandths.
 */
const round = {
  cpuMillis: 1_000,
  memoryBytes: 1_000,
  storageBytes: 0,
  bandwidthBps: 1_000,
  gpus: 0,
};
const shares = (cpuMillis: number, memoryBytes: number): RequestGiven => ({
  resources: { cpuMillis, memoryBytes },
});

function explained(
  node: NodeGiven,
  request: RequestGiven,
  booked?: { cpuMillis: number; memoryBytes: number; bandwidthBps?: number },
) {
  const others =
    booked === undefined
      ? []
      : [aReservation('other-1', { resources: booked, labels: { app: 'other' } })];
  const [explanation] = aCluster([aNode('n1', { capacity: round, ...node })], others).explain(
    aRequest({ ...shares(100, 100), ...request }),
  );
  if (explanation === undefined) throw new Error('the node is missing from the explanation');
  return explanation;
}

describe('score term locality', () => {
  it.each<{ name: string; node?: NodeGiven; request: RequestGiven; is: number }>([
    { name: 'no region or zone requested', request: {}, is: 0.7 },
    { name: 'node in the first region', request: { regions: ['eu', 'us'] }, is: 1 },
    { name: 'node in the second region', request: { regions: ['us', 'eu'] }, is: 0.9 },
    { name: 'node in the fourth region', request: { regions: ['us', 'as', 'af', 'eu'] }, is: 0.7 },
    { name: 'node in no requested region', request: { regions: ['us'] }, is: 0.5 },
    { name: 'node in a requested zone, no region requested', request: { zones: ['a'] }, is: 0.9 },
    { name: 'node in no requested zone, no region requested', request: { zones: ['b'] }, is: 0.5 },
    {
      name: 'region and zone match, clamped to 1',
      request: { regions: ['eu'], zones: ['a'] },
      is: 1,
    },
    {
      name: 'second region, zone does not match',
      request: { regions: ['us', 'eu'], zones: ['b'] },
      is: 0.7,
    },
    {
      name: 'neither region nor zone matches',
      request: { regions: ['us'], zones: ['b'] },
      is: 0.3,
    },
    {
      name: 'region late in the list, zone does not match, clamped to 0',
      request: { regions: [...'123456789', 'eu'], zones: ['b'] },
      is: 0,
    },
  ])('is $is: $name', ({ node = {}, request, is }) => {
    expect(explained(node, { locality: 'preferred', ...request }).terms.locality).toBeCloseTo(
      is,
      12,
    );
  });
});

describe('score term reliability', () => {
  it.each<{ name: string; node: NodeGiven; is: number }>([
    { name: 'reliability absent', node: {}, is: 1 },
    { name: 'reliability given', node: { reliability: 0.75 }, is: 0.75 },
    { name: 'memory pressure', node: { conditions: { memoryPressure: true } }, is: 0.8 },
    {
      name: 'memory and disk pressure',
      node: { conditions: { memoryPressure: true, diskPressure: true } },
      is: 0.6,
    },
    { name: 'network unavailable', node: { conditions: { networkUnavailable: true } }, is: 0.6 },
    {
      name: 'all conditions, clamped to 0',
      node: {
        reliability: 0.5,
        conditions: { memoryPressure: true, diskPressure: true, networkUnavailable: true },
      },
      is: 0,
    },
  ])('is $is: $name', ({ node, is }) => {
    expect(explained(node, {}).terms.reliability).toBeCloseTo(is, 12);
  });
});

describe('score term cost', () => {
  it.each<{ name: string; node?: NodeGiven; request: RequestGiven; is: number }>([
    { name: 'mean share 0.099', request: shares(99, 99), is: 0.7 },
    { name: 'mean share 0.1', request: shares(100, 100), is: 1 },
    { name: 'mean share 0.2 of unequal shares', request: shares(400, 0), is: 1 },
    { name: 'mean share 0.3', request: shares(300, 300), is: 0.8 },
    { name: 'mean share 0.5', request: shares(500, 500), is: 0.6 },
    { name: 'mean share 0.7', request: shares(700, 700), is: 0.3 },
    {
      name: 'share of the whole machine, not of the allocatable part',
      node: { systemReserved: { cpuMillis: 500, memoryBytes: 500 } },
      request: shares(200, 200),
      is: 1,
    },
    {
      name: 'GPU node, no GPU requested',
      node: { capacity: { ...round, gpus: 1 } },
      request: shares(100, 100),
      is: 0.7,
    },
    {
      name: 'GPU node, GPU requested',
      node: { capacity: { ...round, gpus: 1 } },
      request: { resources: { cpuMillis: 100, memoryBytes: 100, gpus: 1 } },
      is: 1,
    },
    {
      name: 'GPU node, no GPU requested, most of the machine',
      node: { capacity: { ...round, gpus: 1 } },
      request: shares(700, 700),
      is: 0,
    },
  ])('is $is: $name', ({ node = {}, request, is }) => {
    expect(explained(node, request).terms.cost).toBeCloseTo(is, 12);
  });
});

describe('score term utilisation', () => {
  it.each<{
    name: string;
    node?: NodeGiven;
    request: RequestGiven;
    booked?: { cpuMillis: number; memoryBytes: number };
    is: number;
  }>([
    { name: 'exactly the target', request: shares(650, 650), is: 1 },
    { name: 'a tenth used', request: shares(100, 100), is: 0.45 },
    {
      name: 'including reservations',
      request: shares(100, 100),
      booked: { cpuMillis: 450, memoryBytes: 450 },
      is: 0.9,
    },
    {
      name: 'including the system reservation',
      node: { systemReserved: { cpuMillis: 450, memoryBytes: 450 } },
      request: shares(100, 100),
      is: 0.9,
    },
    { name: 'unequal shares: mean of the distances', request: shares(250, 650), is: 0.8 },
    {
      name: 'the imbalance shrinks',
      request: shares(100, 300),
      booked: { cpuMillis: 400, memoryBytes: 200 },
      is: 0.95,
    },
    {
      name: 'the imbalance changes sides and grows',
      request: shares(0, 500),
      booked: { cpuMillis: 400, memoryBytes: 200 },
      is: 0.85,
    },
    {
      name: 'the imbalance stays',
      request: shares(100, 100),
      booked: { cpuMillis: 200, memoryBytes: 100 },
      is: 0.6,
    },
    { name: 'exactly 0.9', request: shares(900, 900), is: 0.75 },
    { name: 'one resource above 0.9', request: shares(910, 650), is: 0.57 },
    { name: 'both resources above 0.9', request: shares(950, 950), is: 0.4 },
    { name: 'more than the capacity', request: shares(1_001, 100), is: 0 },
    {
      name: 'memory requested on a node without memory',
      node: { capacity: { ...round, memoryBytes: 0 } },
      request: shares(650, 1),
      is: 0,
    },
    {
      name: 'target and shrinking imbalance, clamped to 1',
      request: shares(0, 250),
      booked: { cpuMillis: 650, memoryBytes: 400 },
      is: 1,
    },
  ])('is $is: $name', ({ node = {}, request, booked, is }) => {
    expect(explained(node, request, booked).terms.utilisation).toBeCloseTo(is, 12);
  });
});

describe('score term networkPenalty', () => {
  const needs = (bandwidthBps: number): RequestGiven => ({
    resources: { cpuMillis: 100, memoryBytes: 100, bandwidthBps },
  });
  it.each<{
    name: string;
    node?: NodeGiven;
    request: RequestGiven;
    booked?: { cpuMillis: number; memoryBytes: number; bandwidthBps: number };
    is: number;
  }>([
    { name: 'nothing requested', request: {}, is: 0 },
    { name: 'enough bandwidth', request: needs(1_000), is: 0 },
    { name: 'half of the bandwidth missing', request: needs(2_000), is: 0.25 },
    {
      name: 'half of the bandwidth reserved by others',
      request: needs(1_000),
      booked: { cpuMillis: 0, memoryBytes: 0, bandwidthBps: 500 },
      is: 0.25,
    },
    {
      name: 'no bandwidth',
      node: { capacity: { ...round, bandwidthBps: 0 } },
      request: needs(1_000),
      is: 0.5,
    },
    {
      name: 'network unavailable',
      node: { conditions: { networkUnavailable: true } },
      request: {},
      is: 1,
    },
    { name: 'region does not match', request: { regions: ['us'] }, is: 0.2 },
    { name: 'region matches', request: { regions: ['us', 'eu'] }, is: 0 },
    { name: 'only the zone does not match', request: { zones: ['b'] }, is: 0 },
    {
      name: 'region does not match and a quarter of the bandwidth is missing',
      request: { ...needs(1_250), regions: ['us'] },
      is: 0.3,
    },
    {
      name: 'everything, clamped to 1',
      node: { conditions: { networkUnavailable: true } },
      request: { ...needs(2_000), regions: ['us'] },
      is: 1,
    },
  ])('is $is: $name', ({ node = {}, request, booked, is }) => {
    expect(
      explained(node, { locality: 'preferred', ...request }, booked).terms.networkPenalty,
    ).toBeCloseTo(is, 12);
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
  it.each<{ name: string; node?: NodeGiven; request: RequestGiven; is: Partial<ScoreTerms> }>([
    { name: 'no preferences', request: {}, is: { affinity: 0, antiAffinity: 0, taints: 0 } },
    {
      name: 'matching node affinity',
      node: { labels },
      request: { nodeAffinity: [nodes(100, 'ssd')] },
      is: { affinity: 0.2 },
    },
    {
      name: 'node affinity that does not match',
      node: { labels },
      request: { nodeAffinity: [nodes(100, 'tpu')] },
      is: { affinity: 0 },
    },
    {
      name: 'two matching terms add up',
      node: { labels },
      request: { nodeAffinity: [nodes(50, 'ssd'), nodes(25, 'gpu')] },
      is: { affinity: 0.15 },
    },
    {
      name: 'matching node anti-affinity',
      node: { labels },
      request: { nodeAntiAffinity: [nodes(50, 'ssd')] },
      is: { antiAffinity: -0.15 },
    },
    {
      name: 'matching workload affinity',
      request: { workloadAffinity: [workloads(50, 'other')] },
      is: { affinity: 0.1 },
    },
    {
      name: 'workload affinity without a matching replica',
      request: { workloadAffinity: [workloads(50, 'cache')] },
      is: { affinity: 0 },
    },
    {
      name: 'workload affinity to itself without a replica',
      request: { workloadAffinity: [workloads(50, 'web')] },
      is: { affinity: 0 },
    },
    {
      name: 'matching workload anti-affinity',
      request: { workloadAntiAffinity: [workloads(100, 'other')] },
      is: { antiAffinity: -0.3 },
    },
    {
      name: 'workload anti-affinity without a matching replica',
      request: { workloadAntiAffinity: [workloads(100, 'cache')] },
      is: { antiAffinity: 0 },
    },
    {
      name: 'two taints, one tolerated',
      node: {
        taints: [
          { key: 'old', effect: 'PreferNoSchedule' },
          { key: 'far', effect: 'PreferNoSchedule' },
        ],
      },
      request: { tolerations: [{ key: 'old', operator: 'Exists' }] },
      is: { taints: -0.1 },
    },
    {
      name: 'two untolerated taints',
      node: {
        taints: [
          { key: 'old', effect: 'PreferNoSchedule' },
          { key: 'far', effect: 'PreferNoSchedule' },
        ],
      },
      request: {},
      is: { taints: -0.2 },
    },
  ])('are as expected for $name', ({ node = {}, request, is }) => {
    const { terms } = explained(node, request, { cpuMillis: 0, memoryBytes: 0 });
    for (const [name, value] of Object.entries(is))
      expect(terms[name as keyof ScoreTerms]).toBeCloseTo(value, 12);
  });
});

describe('total score', () => {
  it('is the weighted sum plus the preferences', () => {
    const { score, terms } = explained(
      { reliability: 0.5, taints: [{ key: 'old', effect: 'PreferNoSchedule' }] },
      { regions: ['us'], locality: 'preferred' },
    );
    // locality .5, reliability .5, cost 1, utilisation .45, penalty .2, taints −.1
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
    const among = aCluster([
      aNode('n1'),
      aNode('n2', { reliability: 0.1 }),
      aNode('n3', { region: 'us' }),
    ]).explain(aRequest());
    expect(among.find(({ nodeId }) => nodeId === 'n1')).toEqual(alone[0]);
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

  it('may be very large', () => {
    const huge = normaliseWeights({
      locality: Number.MAX_VALUE,
      reliability: Number.MAX_VALUE,
      cost: 0,
      utilisation: 0,
      networkPenalty: 0,
    });
    expect(huge).toMatchObject({ locality: 0.5, reliability: 0.5, cost: 0 });
  });

  it('change which node is chosen', () => {
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
