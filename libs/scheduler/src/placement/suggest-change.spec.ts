import { describeSuggestion, type PlacementRequest, type SchedulerNode } from '../index.js';
import { aCluster, aNode, aRequest, aReservation, GIB, MIB } from '../testing/builders.js';

function suggestFor(
  nodes: readonly SchedulerNode[],
  request: Partial<PlacementRequest>,
  reservations: Parameters<typeof aCluster>[1] = [],
): string | undefined {
  const suggestion = aCluster(nodes, reservations).suggest(aRequest(request));
  return suggestion && describeSuggestion(suggestion);
}

const large = (gib: number) => ({ capacity: { cpuMillis: 4_000, memoryBytes: gib * GIB } });

describe('suggestion for a request that fits no node', () => {
  it.each<{
    readonly name: string;
    readonly nodes: readonly SchedulerNode[];
    readonly request: Partial<PlacementRequest>;
    readonly says: string | undefined;
  }>([
    {
      name: 'names the largest free memory, rounded down to whole Gi',
      nodes: [aNode('n1', large(8)), aNode('n2', large(14.75)), aNode('n3', large(12))],
      request: { resources: { cpuMillis: 100, memoryBytes: 100 * GIB } },
      says: 'would fit on n2 with at most 14Gi memory',
    },
    {
      name: 'names small amounts exactly',
      nodes: [aNode('n1', { capacity: { cpuMillis: 750, memoryBytes: 700 * MIB } })],
      request: { resources: { cpuMillis: 1_000, memoryBytes: GIB } },
      says: 'would fit on n1 with at most 750m CPU and with at most 700Mi memory',
    },
    {
      name: 'lists the zones of the cluster',
      nodes: [aNode('n1'), aNode('n2', { zone: 'b' })],
      request: { zones: ['q'] },
      says: 'would fit on n1 in zone a; zones of this cluster: a, b',
    },
    {
      name: 'names the regions of the cluster',
      nodes: [aNode('n1')],
      request: { regions: ['us'] },
      says: 'would fit on n1 in region eu; regions of this cluster: eu',
    },
    {
      name: 'proposes a preferred locality for a node of unknown zone',
      nodes: [aNode('n1', { zone: '' })],
      request: { zones: ['q'] },
      says: 'would fit on n1 with locality "preferred" instead of "required"',
    },
    {
      name: 'proposes a container runtime or a command, without the limits that come with it',
      nodes: [aNode('n1', { capabilities: ['runtime.process'] })],
      request: { capabilities: ['runtime.cri', 'limits.cpu'], zones: ['q'] },
      says: 'would fit on n1 with a container runtime (containerd) and in zone a; or use command instead of image; zones of this cluster: a',
    },
    {
      name: 'prefers a node that lacks less',
      nodes: [aNode('n1'), aNode('n2', { capabilities: ['runtime.cri'], zone: 'b' })],
      request: { capabilities: ['runtime.cri'], zones: ['a'] },
      says: 'would fit on n2 in zone b; zones of this cluster: a, b',
    },
    {
      name: 'names a label',
      nodes: [aNode('n1')],
      request: { nodeSelector: { disk: 'ssd' } },
      says: 'would fit on n1 with the node label disk=ssd',
    },
    {
      name: 'names a toleration',
      nodes: [aNode('n1', { taints: [{ key: 'gpu', value: 'a', effect: 'NoSchedule' }] })],
      request: {},
      says: 'would fit on n1 with a toleration of gpu=a:NoSchedule',
    },
    {
      name: 'names an unmet affinity',
      nodes: [aNode('n1')],
      request: {
        nodeAffinity: [{ mode: 'required', requirements: [{ key: 'ssd', operator: 'Exists' }] }],
      },
      says: 'would fit on n1 without requiring ssd exists',
    },
    {
      name: 'names the cordoned node',
      nodes: [aNode('n1', { availability: { cordoned: true } })],
      request: {},
      says: 'would fit on n1 after the node is uncordoned',
    },
    {
      name: 'drops GPUs that no node has',
      nodes: [aNode('n1')],
      request: { resources: { cpuMillis: 1, memoryBytes: 1, gpus: 1 } },
      says: 'would fit on n1 without GPUs',
    },
    {
      name: 'is absent when all nodes are lost',
      nodes: [aNode('n1', { availability: { lost: true } })],
      request: {},
      says: undefined,
    },
    { name: 'is absent in an empty cluster', nodes: [], request: {}, says: undefined },
    { name: 'is absent when a node fits', nodes: [aNode('n1')], request: {}, says: undefined },
  ])('$name', ({ nodes, request, says }) => {
    expect(suggestFor(nodes, request)).toBe(says);
  });

  it('counts what other replicas have reserved', () => {
    const held = aReservation('db-1', { resources: { cpuMillis: 3_800, memoryBytes: 0 } });
    expect(suggestFor([aNode('n1')], {}, [held])).toBe('would fit on n1 with at most 200m CPU');
  });

  it('names a held host port, an anti-affinity and a spread', () => {
    const held = aReservation('web-1', { hostPorts: [{ number: 80, protocol: 'tcp' }] });
    const request: Partial<PlacementRequest> = {
      hostPorts: [{ number: 80, protocol: 'tcp' }],
      workloadAntiAffinity: [{ mode: 'required', selector: [], topology: 'node' }],
      spread: { topology: 'zone', mode: 'required' },
    };
    const nodes = [aNode('n1'), aNode('n2', { zone: 'b', availability: { lost: true } })];
    expect(suggestFor(nodes, request, [held])).toBe(
      'would fit on n1 without host port 80 and with a preferred instead of a required affinity over node',
    );
  });

  it('proposes no change of a node that the anti-affinity of another workload protects', () => {
    const held = aReservation('db-1', {
      workloadAntiAffinity: [{ mode: 'required', selector: [], topology: 'node' }],
    });
    expect(suggestFor([aNode('n1')], {}, [held])).toBeUndefined();
  });
});
