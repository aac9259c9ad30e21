import { toNodeId, toReplicaId, toWorkloadId, type Random } from '@cloudless/base';
import type {
  HostPort,
  LabelOperator,
  LabelRequirement,
  NodeTerm,
  PlacementRequest,
  Reservation,
  ResourceAmounts,
  Rule,
  SchedulerNode,
  Taint,
  Toleration,
  WorkloadTerm,
} from '../index.js';

/** A small, crowded random world in which nodes fill up and every filter fails sometimes. */
export interface World {
  readonly nodes: readonly SchedulerNode[];
  readonly reservations: readonly Reservation[];
  readonly requests: readonly PlacementRequest[];
}

/** Draws from a source of randomness. */
class Dice {
  constructor(private readonly random: Random) {}
  chance(probability: number): boolean {
    return this.random.next() < probability;
  }
  upTo(most: number): number {
    return Math.floor(this.random.next() * (most + 1));
  }
  one<Item>(items: readonly [Item, ...Item[]]): Item {
    return items[this.upTo(items.length - 1)] ?? items[0];
  }
  some<Item>(items: readonly Item[], probability: number): Item[] {
    return items.filter(() => this.chance(probability));
  }
  list<Item>(most: number, make: (index: number) => Item): Item[] {
    return Array.from({ length: this.upTo(most) }, (_, index) => make(index));
  }
}

const workloads = ['web', 'db', 'cache'] as const;
const topologies = ['node', 'zone', 'region', 'rack'] as const;
const taints: readonly Taint[] = [
  { key: 'dedicated', value: 'gpu', effect: 'NoSchedule' },
  { key: 'spot', effect: 'NoExecute' },
  { key: 'old', effect: 'PreferNoSchedule' },
];

/** Draws a world. Equal sources give equal worlds. */
export function aWorld(random: Random): World {
  const dice = new Dice(random);
  const nodes = dice.list(7, (index) => aRandomNode(dice, index));
  const reservations = dice.list(12, (index) => aRandomReservation(dice, index));
  return { nodes, reservations, requests: Array.from({ length: 3 }, () => aRandomRequest(dice)) };
}

function aRandomNode(dice: Dice, index: number): SchedulerNode {
  const flag = (): boolean => dice.chance(0.05);
  return {
    id: toNodeId(`n${index}`),
    region: dice.one(['eu', 'eu', 'us', '']),
    zone: dice.one(['a', 'b', 'c', '']),
    labels: {
      ...(dice.chance(0.6) ? { rack: dice.one(['r1', 'r2']) } : {}),
      ...(dice.chance(0.7) ? { cores: dice.one(['2', '8', '16', 'many']) } : {}),
    },
    taints: dice.some(taints, 0.12),
    capacity: {
      cpuMillis: 500 * dice.upTo(8),
      memoryBytes: 1_000 * (2 + dice.upTo(6)),
      storageBytes: 1_000 * dice.upTo(4),
      bandwidthBps: 1_000 * dice.upTo(4),
      gpus: dice.upTo(2),
    },
    systemReserved: { cpuMillis: 250 * dice.upTo(2), memoryBytes: 0 },
    maxReplicas: dice.one([110, 5, 2]),
    capabilities: dice.some(['runtime.process', 'runtime.cri'], 0.85),
    conditions: { memoryPressure: flag(), diskPressure: flag(), networkUnavailable: flag() },
    reliability: dice.upTo(32) / 32,
    availability: { lost: flag(), draining: flag(), cordoned: flag(), quarantined: flag() },
  };
}

function aRandomReservation(dice: Dice, index: number): Reservation {
  const workload = dice.one(workloads);
  return {
    replicaId: toReplicaId(`old-${index}`),
    nodeId: toNodeId(`n${dice.upTo(7)}`), // no node has the last one
    workloadId: toWorkloadId(workload),
    namespace: dice.one(['default', 'default', 'prod']),
    labels: { app: workload, ...(dice.chance(0.3) ? { tier: 'front' } : {}) },
    resources: someResources(dice),
    hostPorts: somePorts(dice),
    workloadAntiAffinity: dice.chance(0.2) ? [aWorkloadTerm(dice)] : [],
    leaving: dice.chance(0.2),
  };
}

function aRandomRequest(dice: Dice): PlacementRequest {
  const workload = dice.one(workloads);
  const maybe = <Item>(probability: number, make: () => Item): Item[] =>
    dice.chance(probability) ? [make()] : [];
  return {
    workloadId: toWorkloadId(workload),
    namespace: 'default',
    labels: { app: workload },
    resources: someResources(dice),
    hostPorts: somePorts(dice),
    regions: dice.chance(0.3) ? dice.some(['eu', 'us', 'as'], 0.7) : [],
    zones: dice.chance(0.2) ? dice.some(['a', 'b'], 0.7) : [],
    locality: dice.one(['required', 'preferred']),
    nodeSelector: dice.chance(0.15) ? { rack: 'r1' } : {},
    nodeAffinity: maybe(0.3, () => aNodeTerm(dice)),
    nodeAntiAffinity: maybe(0.3, () => aNodeTerm(dice)),
    workloadAffinity: maybe(0.35, () => aWorkloadTerm(dice)),
    workloadAntiAffinity: maybe(0.35, () => aWorkloadTerm(dice)),
    tolerations: maybe(0.4, () => aToleration(dice)),
    capabilities: dice.some(['runtime.process'], 0.3),
    ...(dice.chance(0.5)
      ? {
          spread: {
            topology: dice.one(topologies),
            mode: dice.one(['required', 'preferred'] as const),
            maxSkew: 1 + dice.upTo(1),
          },
        }
      : {}),
  };
}

function someResources(dice: Dice): ResourceAmounts {
  const odd = (amount: number): number => (dice.chance(0.15) ? amount : 0);
  return {
    cpuMillis: 100 * dice.upTo(6),
    memoryBytes: 250 * dice.upTo(4),
    storageBytes: odd(500),
    bandwidthBps: odd(700),
    gpus: odd(1),
  };
}

/** Returns mostly no ports, otherwise one of three ports, so that requests conflict. */
function somePorts(dice: Dice): readonly HostPort[] {
  const ports = [
    { number: 80, protocol: 'tcp' },
    { number: 53, protocol: 'tcp' },
    { number: 53, protocol: 'udp' },
  ] as const;
  return dice.chance(0.3) ? dice.some(ports, 0.5) : [];
}

function aRule(dice: Dice): Rule {
  return dice.chance(0.6) ? { mode: 'required' } : { mode: 'preferred', weight: 1 + dice.upTo(99) };
}

function aNodeTerm(dice: Dice): NodeTerm {
  return {
    ...aRule(dice),
    requirements: dice.list(2, () => aRequirement(dice, 'cores', ['2', '8', '16'])),
  };
}

function aWorkloadTerm(dice: Dice): WorkloadTerm {
  const selector = dice.chance(0.8)
    ? [{ key: 'app', operator: 'In' as const, values: [dice.one(workloads)] }]
    : dice.list(1, () => aRequirement(dice, 'tier', ['1', '2']));
  return {
    ...aRule(dice),
    topology: dice.one(topologies),
    selector,
    ...(dice.chance(0.2) ? { namespaces: ['prod'] } : {}),
  };
}

function aRequirement(
  dice: Dice,
  key: string,
  values: readonly [string, ...string[]],
): LabelRequirement {
  const operator = dice.one<LabelOperator>(['In', 'NotIn', 'Exists', 'DoesNotExist', 'Gt', 'Lt']);
  return operator === 'Exists' || operator === 'DoesNotExist'
    ? { key, operator }
    : { key, operator, values: [dice.one(values)] };
}

function aToleration(dice: Dice): Toleration {
  return dice.one<Toleration>([
    { operator: 'Exists' },
    { key: 'spot', operator: 'Exists', effect: 'NoExecute' },
    { key: 'dedicated', operator: 'Equal', value: 'gpu' },
    { key: 'dedicated', operator: 'Equal', value: 'db', effect: '' },
  ]);
}
