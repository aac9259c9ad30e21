import { toNodeId, toReplicaId, toWorkloadId, type Random } from '@cloudless/base';
import type {
  SchedulerHostPort,
  LabelOperator,
  LabelRequirement,
  NodeTerm,
  PlacementRequest,
  Reservation,
  ResourceAmounts,
  TermMode,
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
class RandomDraws {
  constructor(private readonly random: Random) {}
  chance(probability: number): boolean {
    return this.random.next() < probability;
  }
  /** Draws a whole number from 0 to `max`. */
  wholeNumber(max: number): number {
    return Math.floor(this.random.next() * (max + 1));
  }
  pick<Item>(items: readonly [Item, ...Item[]]): Item {
    return items[this.wholeNumber(items.length - 1)] ?? items[0];
  }
  pickSome<Item>(items: readonly Item[], probability: number): Item[] {
    return items.filter(() => this.chance(probability));
  }
  /** Creates a list of 0 to `maxLength` items. */
  createList<Item>(maxLength: number, make: (index: number) => Item): Item[] {
    return Array.from({ length: this.wholeNumber(maxLength) }, (_, index) => make(index));
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
  const dice = new RandomDraws(random);
  const nodes = dice.createList(7, (index) => aRandomNode(dice, index));
  const reservations = dice.createList(12, (index) => aRandomReservation(dice, index));
  return { nodes, reservations, requests: Array.from({ length: 3 }, () => aRandomRequest(dice)) };
}

/** Draws `count` nodes, for worlds in which trees are deep. Equal sources give equal nodes. */
export function manyNodes(random: Random, count: number): SchedulerNode[] {
  const dice = new RandomDraws(random);
  return Array.from({ length: count }, (_, index) => aRandomNode(dice, index));
}

function aRandomNode(dice: RandomDraws, index: number): SchedulerNode {
  const flag = (): boolean => dice.chance(0.05);
  return {
    id: toNodeId(`n${index}`),
    region: dice.pick(['eu', 'eu', 'us', '']),
    zone: dice.pick(['a', 'b', 'c', '']),
    labels: {
      ...(dice.chance(0.6) ? { rack: dice.pick(['r1', 'r2']) } : {}),
      ...(dice.chance(0.7) ? { cores: dice.pick(['2', '8', '16', 'many']) } : {}),
    },
    taints: dice.pickSome(taints, 0.12),
    capacity: {
      cpuMillis: 500 * dice.wholeNumber(8),
      memoryBytes: 1_000 * (2 + dice.wholeNumber(6)),
      storageBytes: 1_000 * dice.wholeNumber(4),
      bandwidthBps: 1_000 * dice.wholeNumber(4),
      gpus: dice.wholeNumber(2),
      custom: { license: dice.wholeNumber(3), fpga: dice.wholeNumber(1), unused: 0 },
    },
    systemReserved: { cpuMillis: 250 * dice.wholeNumber(2), memoryBytes: 0 },
    maxReplicas: dice.pick([110, 5, 2]),
    capabilities: dice.pickSome(['runtime.process', 'runtime.cri'], 0.85),
    conditions: { memoryPressure: flag(), diskPressure: flag(), networkUnavailable: flag() },
    reliability: dice.wholeNumber(32) / 32,
    availability: {
      lost: flag(),
      unreachable: flag(),
      draining: flag(),
      cordoned: flag(),
      quarantined: flag(),
    },
  };
}

function aRandomReservation(dice: RandomDraws, index: number): Reservation {
  const workload = dice.pick(workloads);
  return {
    replicaId: toReplicaId(`old-${index}`),
    // There are at most 7 nodes, so some reservations are on a node that does not exist.
    nodeId: toNodeId(`n${dice.wholeNumber(7)}`),
    workloadId: toWorkloadId(workload),
    namespace: dice.pick(['default', 'default', 'prod']),
    labels: { app: workload, ...(dice.chance(0.3) ? { tier: 'front' } : {}) },
    resources: drawResources(dice),
    hostPorts: drawPorts(dice),
    workloadAntiAffinity: dice.chance(0.2) ? [aWorkloadTerm(dice)] : [],
    leaving: dice.chance(0.2),
  };
}

function aRandomRequest(dice: RandomDraws): PlacementRequest {
  const workload = dice.pick(workloads);
  const drawSometimes = <Item>(probability: number, make: () => Item): Item[] =>
    dice.chance(probability) ? [make()] : [];
  return {
    workloadId: toWorkloadId(workload),
    namespace: 'default',
    labels: { app: workload },
    resources: drawResources(dice),
    hostPorts: drawPorts(dice),
    regions: dice.chance(0.3) ? dice.pickSome(['eu', 'us', 'as'], 0.7) : [],
    zones: dice.chance(0.2) ? dice.pickSome(['a', 'b'], 0.7) : [],
    locality: dice.pick(['required', 'preferred']),
    nodeSelector: dice.chance(0.15) ? { rack: 'r1' } : {},
    nodeAffinity: drawSometimes(0.3, () => aNodeTerm(dice)),
    nodeAntiAffinity: drawSometimes(0.3, () => aNodeTerm(dice)),
    workloadAffinity: drawSometimes(0.35, () => aWorkloadTerm(dice)),
    workloadAntiAffinity: drawSometimes(0.35, () => aWorkloadTerm(dice)),
    tolerations: drawSometimes(0.4, () => aToleration(dice)),
    capabilities: dice.pickSome(['runtime.process'], 0.3),
    ...(dice.chance(0.5)
      ? {
          spread: {
            topology: dice.pick(topologies),
            mode: dice.pick(['required', 'preferred'] as const),
            maxSkew: 1 + dice.wholeNumber(1),
          },
        }
      : {}),
  };
}

function drawResources(dice: RandomDraws): ResourceAmounts {
  const drawSeldom = (amount: number): number => (dice.chance(0.15) ? amount : 0);
  return {
    cpuMillis: 100 * dice.wholeNumber(6),
    memoryBytes: 250 * dice.wholeNumber(4),
    storageBytes: drawSeldom(500),
    bandwidthBps: drawSeldom(700),
    gpus: drawSeldom(1),
    ...(dice.chance(0.15) ? { custom: { license: dice.wholeNumber(2) } } : {}),
    ...(dice.chance(0.05) ? { custom: { license: 1, fpga: 1 } } : {}),
  };
}

/** Returns mostly no ports, otherwise one of three ports, so that requests conflict. */
function drawPorts(dice: RandomDraws): readonly SchedulerHostPort[] {
  const ports = [
    { number: 80, protocol: 'tcp' },
    { number: 53, protocol: 'tcp' },
    { number: 53, protocol: 'udp' },
  ] as const;
  return dice.chance(0.3) ? dice.pickSome(ports, 0.5) : [];
}

function drawTermMode(dice: RandomDraws): TermMode {
  return dice.chance(0.6)
    ? { mode: 'required' }
    : { mode: 'preferred', weight: 1 + dice.wholeNumber(99) };
}

function aNodeTerm(dice: RandomDraws): NodeTerm {
  return {
    ...drawTermMode(dice),
    requirements: dice.createList(2, () => aRequirement(dice, 'cores', ['2', '8', '16'])),
  };
}

function aWorkloadTerm(dice: RandomDraws): WorkloadTerm {
  const selector = dice.chance(0.8)
    ? [{ key: 'app', operator: 'In' as const, values: [dice.pick(workloads)] }]
    : dice.createList(1, () => aRequirement(dice, 'tier', ['1', '2']));
  return {
    ...drawTermMode(dice),
    topology: dice.pick(topologies),
    selector,
    ...(dice.chance(0.2) ? { namespaces: ['prod'] } : {}),
  };
}

function aRequirement(
  dice: RandomDraws,
  key: string,
  values: readonly [string, ...string[]],
): LabelRequirement {
  const operator = dice.pick<LabelOperator>(['In', 'NotIn', 'Exists', 'DoesNotExist', 'Gt', 'Lt']);
  return operator === 'Exists' || operator === 'DoesNotExist'
    ? { key, operator }
    : { key, operator, values: [dice.pick(values)] };
}

function aToleration(dice: RandomDraws): Toleration {
  return dice.pick<Toleration>([
    { operator: 'Exists' },
    { key: 'spot', operator: 'Exists', effect: 'NoExecute' },
    { key: 'dedicated', operator: 'Equal', value: 'gpu' },
    { key: 'dedicated', operator: 'Equal', value: 'db', effect: '' },
  ]);
}
