import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import type { PlacementRequest, Reservation, SchedulerNode } from '../index.js';
import { aCluster, aNode, aRequest, aReservation } from '../testing/builders.js';

const CPU = { cpuMillis: 2_000, memoryBytes: 1_000, storageBytes: 0, bandwidthBps: 0, gpus: 0 };

/** A node with 2 CPUs. */
function node(id: string, changes: Partial<SchedulerNode> = {}): SchedulerNode {
  return aNode(id, { capacity: CPU, ...changes });
}

/** A reservation of workload `low` with priority 10 that takes 1 CPU of `n1`. */
function low(replicaId: string, changes: Partial<Reservation> = {}): Reservation {
  return aReservation(replicaId, {
    workloadId: toWorkloadId('low'),
    labels: { app: 'low' },
    priority: 10,
    resources: { cpuMillis: 1_000, memoryBytes: 10 },
    ...changes,
  });
}

/** A request of priority 200 for 1 CPU. */
function high(changes: Partial<PlacementRequest> = {}): PlacementRequest {
  return aRequest({ priority: 200, resources: { cpuMillis: 1_000, memoryBytes: 10 }, ...changes });
}

/** Returns the node and the victims of a decision in one line, or its kind. */
function preempt(
  nodes: readonly SchedulerNode[],
  reservations: readonly Reservation[],
  request: PlacementRequest,
  options: Parameters<ReturnType<typeof aCluster>['preempt']>[1] = {},
): string {
  const decision = aCluster(nodes, reservations).preempt(request, options);
  if (decision.kind !== 'preempt') return decision.kind;
  const victims = decision.victims.map(({ replicaId }) => replicaId).join(' ');
  return `${decision.nodeId}: ${victims === '' ? 'none' : victims}`;
}

const full = [low('a-1'), low('a-2')];
const onN2 = { nodeId: toNodeId('n2') };

describe('preempt', () => {
  it.each([
    { name: 'evicts nothing while a node fits', reservations: [low('a-1')], result: 'fits' },
    { name: 'evicts the newest of equal replicas', reservations: full, result: 'n1: a-2' },
    {
      name: 'evicts nothing of equal priority',
      reservations: full.map((held) => ({ ...held, priority: 200 })),
      result: 'impossible',
    },
    {
      name: 'evicts several replicas of low priority rather than one of higher priority',
      reservations: [
        low('a-1', { resources: { cpuMillis: 500, memoryBytes: 1 } }),
        low('a-2', { resources: { cpuMillis: 500, memoryBytes: 1 } }),
        low('b-1', { priority: 20 }),
      ],
      result: 'n1: a-2 a-1',
    },
    {
      name: 'evicts one large replica rather than several small ones of the same priority',
      reservations: [
        low('a-1', { resources: { cpuMillis: 500, memoryBytes: 1 } }),
        low('a-2', { resources: { cpuMillis: 500, memoryBytes: 1 } }),
        low('b-1'),
      ],
      result: 'n1: b-1',
    },
    {
      name: 'waits for leaving replicas instead of evicting others',
      reservations: [low('a-1', { leaving: true }), low('a-2')],
      result: 'n1: none',
    },
    {
      name: 'evicts no replica of its own workload',
      reservations: full.map((held) => ({ ...held, workloadId: toWorkloadId('web') })),
      result: 'impossible',
    },
  ])('$name', ({ reservations, result }) => {
    expect(preempt([node('n1')], reservations, high())).toBe(result);
  });

  it.each([
    { name: 'memory', need: { cpuMillis: 0, memoryBytes: 995 }, result: 'n1: a-2' },
    { name: 'storage', need: { cpuMillis: 0, memoryBytes: 0, storageBytes: 1 } },
    { name: 'GPUs', need: { cpuMillis: 0, memoryBytes: 0, gpus: 1 } },
    { name: 'bandwidth', need: { cpuMillis: 0, memoryBytes: 0, bandwidthBps: 1 } },
  ])('evicts for $name only when that makes room', ({ need, result = 'impossible' }) => {
    const reservations = full.map((held, index) => ({
      ...held,
      resources: { cpuMillis: 0, memoryBytes: index === 0 ? 5 : 10 },
    }));
    expect(preempt([node('n1')], reservations, high({ resources: need }))).toBe(result);
  });

  it.each(['storageBytes', 'bandwidthBps', 'gpus'] as const)('counts %s', (field) => {
    const holder = low('a-1', { resources: { cpuMillis: 0, memoryBytes: 0, [field]: 2 } });
    const request = high({ resources: { cpuMillis: 0, memoryBytes: 0, [field]: 1 } });
    const nodes = [node('n1', { capacity: { ...CPU, [field]: 2 } })];
    expect(preempt(nodes, [holder, low('a-2')], request)).toBe('n1: a-1');
  });

  it('evicts for a replica slot of the node', () => {
    expect(preempt([node('n1', { maxReplicas: 1 })], [low('a-1')], high())).toBe('n1: a-1');
  });

  it('evicts the holder of a host port and nothing else', () => {
    const port = [{ number: 80, protocol: 'tcp' as const }];
    const small = { cpuMillis: 100, memoryBytes: 1 };
    const reservations = [
      low('a-1', { resources: small, hostPorts: port }),
      low('a-2', { resources: small }),
    ];
    const request = high({ resources: small, hostPorts: port });
    expect(preempt([node('n1')], reservations, request)).toBe('n1: a-1');
    const held = reservations.map((each) => ({ ...each, priority: 300 }));
    expect(preempt([node('n1')], held, request)).toBe('impossible');
  });

  it.each(['lost', 'draining', 'cordoned', 'quarantined'] as const)(
    'evicts nothing on a node that is %s',
    (state) => {
      const nodes = [node('n1', { availability: { [state]: true } })];
      expect(preempt(nodes, full, high())).toBe('impossible');
    },
  );

  it.each<{ name: string; changes: Partial<PlacementRequest> }>([
    { name: 'a missing capability', changes: { capabilities: ['runtime.cri'] } },
    { name: 'another zone', changes: { zones: ['b'] } },
    { name: 'a missing label', changes: { nodeSelector: { disk: 'ssd' } } },
    {
      name: 'an anti-affinity',
      changes: {
        workloadAntiAffinity: [
          {
            mode: 'required',
            topology: 'zone',
            selector: [{ key: 'app', operator: 'In', values: ['low'] }],
          },
        ],
      },
    },
    {
      name: 'a larger request than any node',
      changes: { resources: { cpuMillis: 9_000, memoryBytes: 1 } },
    },
  ])('evicts nothing because of $name', ({ changes }) => {
    expect(preempt([node('n1')], full, high(changes))).toBe('impossible');
  });

  it('evicts nothing on a node where the victim is the replica that the request has to be near', () => {
    const near = high({
      workloadAffinity: [
        {
          mode: 'required',
          topology: 'node',
          selector: [{ key: 'app', operator: 'In', values: ['low'] }],
        },
      ],
    });
    const wide = low('a-1', { resources: { cpuMillis: 2_000, memoryBytes: 1 } });
    expect(preempt([node('n1')], [wide], near)).toBe('impossible');
    expect(preempt([node('n1')], full, near)).toBe('n1: a-2');
  });

  it('evicts nothing where a required spread allows no further replica', () => {
    const nodes = [node('n1'), node('n2', { zone: 'b' })];
    const own = aReservation('w-1', { resources: { cpuMillis: 0, memoryBytes: 1 } });
    const inB = full.map((held, index) => low(`b-${index}`, { ...held, ...onN2, priority: 20 }));
    const spread = { topology: 'zone', mode: 'required' } as const;
    expect(preempt(nodes, [...full, ...inB, own], high())).toBe('n1: a-2');
    expect(preempt(nodes, [...full, ...inB, own], high({ spread }))).toBe('n2: b-1');
  });

  it('evicts nothing where the anti-affinity of a replica excludes the request', () => {
    const alone = low('a-2', {
      workloadAntiAffinity: [
        {
          mode: 'required',
          topology: 'node',
          selector: [{ key: 'app', operator: 'In', values: ['web'] }],
        },
      ],
    });
    const onOther = full.map((held, index) =>
      low(`b-${index}`, { ...held, ...onN2, priority: 20 }),
    );
    const reservations = [low('a-1'), alone, ...onOther];
    expect(preempt([node('n1'), node('n2')], reservations, high())).toBe('n2: b-1');
  });

  it('prefers the node with victims of lower priority, then with fewer victims', () => {
    const nodes = [node('n1'), node('n2')];
    const mixed = [
      ...full.map((held) => ({ ...held, priority: 20 })),
      low('b-1', onN2),
      low('b-2', onN2),
    ];
    expect(preempt(nodes, mixed, high())).toBe('n2: b-2');
    const halves = ['c-1', 'c-2', 'c-3', 'c-4'].map((id) =>
      low(id, { resources: { cpuMillis: 500, memoryBytes: 1 } }),
    );
    expect(preempt(nodes, [...halves, low('b-1', onN2), low('b-2', onN2)], high())).toBe('n2: b-2');
  });

  it('spreads a workload over zones and nodes when the victims are equal', () => {
    const nodes = [node('n1'), node('n2'), node('n3', { zone: 'b' })];
    const onEach = ['n1', 'n2', 'n3'].flatMap((id) => [
      low(`${id}-1`, { nodeId: toNodeId(id), resources: { cpuMillis: 900, memoryBytes: 1 } }),
      low(`${id}-2`, { nodeId: toNodeId(id), resources: { cpuMillis: 900, memoryBytes: 1 } }),
    ]);
    const own = (replicaId: string, nodeId: string): Reservation =>
      aReservation(replicaId, {
        priority: 200,
        nodeId: toNodeId(nodeId),
        resources: { cpuMillis: 100, memoryBytes: 1 },
      });
    expect(preempt(nodes, onEach, high())).toBe('n1: n1-2');
    expect(preempt(nodes, [...onEach, own('w-1', 'n1')], high())).toBe('n3: n3-2');
    const both = [...onEach, own('w-1', 'n1'), own('w-2', 'n3')];
    expect(preempt(nodes, both, high())).toBe('n2: n2-2');
  });

  it('keeps the preferred node when its victims are as good as the best', () => {
    const nodes = [node('n1'), node('n2')];
    const reservations = [...full, low('b-1', onN2), low('b-2', onN2)];
    expect(preempt(nodes, reservations, high(), { preferredNodeId: toNodeId('n2') })).toBe(
      'n2: b-2',
    );
  });

  it('considers only the nodes that the options name', () => {
    const nodes = [node('n1'), node('n2')];
    const options = { nodeIds: [toNodeId('n1')] };
    expect(preempt(nodes, full, high(), options)).toBe('n1: a-2');
    expect(preempt(nodes, full, high(), { nodeIds: [toNodeId('n2')] })).toBe('fits');
  });

  it('takes unavailable replicas first, and available ones only within the permits', () => {
    const ready = new Set<string>([toReplicaId('a-2')]);
    const options = {
      evictabilityOf: ({ replicaId }: { readonly replicaId: string }) =>
        ready.has(replicaId) ? ('counted' as const) : ('free' as const),
      permitsOf: () => 0,
    };
    expect(preempt([node('n1')], full, high(), options)).toBe('n1: a-1');
    ready.add(toReplicaId('a-1'));
    const decision = aCluster([node('n1')], full).preempt(high(), options);
    expect(decision).toMatchObject({
      kind: 'impossible',
      withoutPermits: { nodeId: 'n1', victims: [{ replicaId: 'a-2', workloadId: 'low' }] },
    });
  });

  it('finds the best of 90 nodes that have 91 different priorities', () => {
    const nodes = Array.from({ length: 90 }, (_, index) => node(`n${index + 10}`));
    const reservations = nodes.flatMap(({ id }, index) => [
      low(`a-${index}`, { nodeId: id, priority: 140 - index }),
      low(`b-${index}`, { nodeId: id, priority: 150 }),
    ]);
    expect(preempt(nodes, reservations, high())).toBe('n99: a-89');
  });

  it('spares every victim it can on a node with many replicas of different sizes', () => {
    const sizes = Array.from({ length: 120 }, (_, index) => ({
      cpuMillis: 3 + ((index * 37) % 29),
      memoryBytes: 2 + ((index * 53) % 31),
    }));
    const reservations = sizes.map((resources, index) => low(`a-${index}`, { resources }));
    const used = (field: 'cpuMillis' | 'memoryBytes'): number =>
      sizes.reduce((sum, size) => sum + size[field], 0);
    const capacity = { cpuMillis: used('cpuMillis'), memoryBytes: used('memoryBytes') };
    const cluster = aCluster([node('n1', { capacity, maxReplicas: 200 })], reservations);
    const decision = cluster.preempt(high({ resources: { cpuMillis: 400, memoryBytes: 500 } }));
    if (decision.kind !== 'preempt') throw new Error(decision.kind);
    const victims = decision.victims.map(
      ({ replicaId }) => sizes[Number(replicaId.slice(2))] ?? { cpuMillis: 0, memoryBytes: 0 },
    );
    const freed = (without?: (typeof victims)[number]) => ({
      cpuMillis: victims.reduce((sum, each) => sum + (each === without ? 0 : each.cpuMillis), 0),
      memoryBytes: victims.reduce(
        (sum, each) => sum + (each === without ? 0 : each.memoryBytes),
        0,
      ),
    });
    expect(freed().cpuMillis >= 400 && freed().memoryBytes >= 500).toBe(true);
    for (const victim of victims) {
      const { cpuMillis, memoryBytes } = freed(victim);
      expect(cpuMillis >= 400 && memoryBytes >= 500).toBe(false);
    }
  });

  it('leaves the node of a reservation readable until its release', () => {
    const cluster = aCluster([node('n1')], [low('a-1')]);
    expect(cluster.reservedOn(toReplicaId('a-1'))).toBe('n1');
    cluster.release(toReplicaId('a-1'));
    expect(cluster.reservedOn(toReplicaId('a-1'))).toBeUndefined();
  });

  it('rejects an invalid request', () => {
    expect(() => aCluster([node('n1')]).preempt(high({ priority: 1_001 }))).toThrow('priority');
  });
});
