// How tightly replicas are packed: the scheduler of Cloudless, and best fit over all nodes, over 13
// nodes and over a tenth of the nodes, on the same stream; beside the fewest nodes that could hold
// the stream.
import { parseArgs } from 'node:util';
import { createSeededRandom, toNodeId, toReplicaId, type Random } from '@cloudless/base';
import { createCluster, type Cluster } from '@cloudless/scheduler';
import { printReport } from '../report.js';
import { Violations } from '../violations.js';
import {
  SampledBestFit,
  computeLowerBound,
  type Amounts,
  type PackingModel,
} from './packing-models.js';
import { MIB, createRequest, draw } from './worlds.js';

const { values } = parseArgs({
  options: {
    nodes: { type: 'string', default: '1000' },
    seeds: { type: 'string', default: '3' },
  },
});
const NODES = Number(values.nodes);
const SEEDS = Number(values.seeds);
/** Nodes that Nomad looks at in a cluster of 5,000: the binary logarithm, rounded up. */
const NOMAD_SAMPLE = 13;
/** Share of the nodes that Kubernetes scores in a cluster of 5,000. */
const KUBERNETES_SHARE = 0.1;
/** Share of the capacity that the first stream asks for, of its scarcer resource. */
const HALF = 0.5;

const violations = new Violations();

/** Nodes of a world: all alike, or of 8 to 32 cores with three amounts of memory per core. */
function drawNodes(random: Random, areEqual: boolean): readonly Amounts[] {
  if (areEqual)
    return Array.from({ length: NODES }, () => ({ cpuMillis: 16_000, memoryMib: 65_536 }));
  return Array.from({ length: NODES }, () => {
    const cores = 8 * draw(random, 1, 4);
    const gibPerCore = [2, 4, 8][draw(random, 0, 2)] ?? 4;
    return { cpuMillis: cores * 1_000, memoryMib: cores * gibPerCore * 1_024 };
  });
}

/** Mostly small replicas, some that need half a small node. */
function drawDemand(random: Random): Amounts {
  const isLarge = random.next() < 0.1;
  const cpuMillis = isLarge ? draw(random, 2_000, 6_000) : 50 * draw(random, 1, 20);
  return { cpuMillis, memoryMib: Math.round(cpuMillis * (0.5 + 7.5 * random.next())) };
}

/** Demands until their sum is `share` of the capacity in one resource. */
function drawStream(random: Random, nodes: readonly Amounts[], share: number): readonly Amounts[] {
  const sum = (list: readonly Amounts[], key: keyof Amounts): number =>
    list.reduce((total, amounts) => total + amounts[key], 0);
  const limit = {
    cpuMillis: sum(nodes, 'cpuMillis') * share,
    memoryMib: sum(nodes, 'memoryMib') * share,
  };
  const stream: Amounts[] = [];
  const used = { cpuMillis: 0, memoryMib: 0 };
  for (;;) {
    const demand = drawDemand(random);
    used.cpuMillis += demand.cpuMillis;
    used.memoryMib += demand.memoryMib;
    if (used.cpuMillis > limit.cpuMillis || used.memoryMib > limit.memoryMib) return stream;
    stream.push(demand);
  }
}

/** The scheduler of Cloudless. Each replica is a workload of its own, so nothing is spread. */
class CloudlessModel implements PackingModel {
  private readonly cluster: Cluster = createCluster();

  constructor(nodes: readonly Amounts[]) {
    nodes.forEach(({ cpuMillis, memoryMib }, index) =>
      this.cluster.upsertNode({
        id: toNodeId(`node-${index}`),
        region: 'local',
        zone: 'zone-a',
        capacity: { cpuMillis, memoryBytes: memoryMib * MIB },
        maxReplicas: 100_000,
        capabilities: ['runtime.process'],
      }),
    );
  }

  place(replica: number, { cpuMillis, memoryMib }: Amounts): number | undefined {
    const resources = { cpuMillis, memoryBytes: memoryMib * MIB };
    const request = createRequest(`stream-${replica}`, { resources });
    const [placement] = this.cluster.place(request, 1);
    if (placement?.placed !== true) return undefined;
    const { workloadId, namespace } = request;
    const { nodeId } = placement;
    this.cluster.reserve({
      replicaId: toReplicaId(`r-${replica}`),
      nodeId,
      workloadId,
      namespace,
      resources,
    });
    return Number(nodeId.slice('node-'.length));
  }
}

/** Places a stream and checks that no node is exceeded. */
function runStream(model: PackingModel, nodes: readonly Amounts[], stream: readonly Amounts[]) {
  const used = new Map<number, { cpuMillis: number; memoryMib: number }>();
  let refused = 0;
  stream.forEach((demand, replica) => {
    const index = model.place(replica, demand);
    if (index === undefined) return void (refused += 1);
    const sum = used.get(index) ?? { cpuMillis: 0, memoryMib: 0 };
    sum.cpuMillis += demand.cpuMillis;
    sum.memoryMib += demand.memoryMib;
    used.set(index, sum);
  });
  let exceeded = 0;
  for (const [index, sum] of used) {
    const node = nodes[index];
    if (node === undefined || sum.cpuMillis > node.cpuMillis || sum.memoryMib > node.memoryMib)
      exceeded += 1;
  }
  violations.checkZero(exceeded, 'nodes beyond their capacity');
  return { nodesUsed: used.size, refused };
}

const MODELS: Readonly<Record<string, (nodes: readonly Amounts[], seed: number) => PackingModel>> =
  {
    cloudless: (nodes) => new CloudlessModel(nodes),
    bestFitOfAllNodes: (nodes, seed) =>
      new SampledBestFit(nodes, nodes.length, createSeededRandom(seed)),
    bestFitOf13: (nodes, seed) => new SampledBestFit(nodes, NOMAD_SAMPLE, createSeededRandom(seed)),
    bestFitOfATenth: (nodes, seed) =>
      new SampledBestFit(
        nodes,
        Math.ceil(nodes.length * KUBERNETES_SHARE),
        createSeededRandom(seed),
      ),
  };

/** Runs the streams of one seed by all models. */
function compareModels(seed: number, areEqual: boolean) {
  const random = createSeededRandom(seed);
  const nodes = drawNodes(random, areEqual);
  const half = drawStream(random, nodes, HALF);
  const full = drawStream(random, nodes, 1);
  const lowerBoundNodes = computeLowerBound(nodes, half);
  const models = Object.entries(MODELS).map(([name, createModel]) => {
    const ofHalf = runStream(createModel(nodes, seed), nodes, half);
    violations.checkZero(ofHalf.refused, `${name}: refused of half the capacity`);
    const { refused } = runStream(createModel(nodes, seed), nodes, full);
    const figures = {
      nodesUsedByHalf: ofHalf.nodesUsed,
      nodesOverLowerBound: Number((ofHalf.nodesUsed / lowerBoundNodes).toFixed(3)),
      refusedOfFull: refused,
      refusedShareOfFull: Number((refused / full.length).toFixed(4)),
    };
    return [name, figures] as const;
  });
  return {
    seed,
    replicasOfHalf: half.length,
    lowerBoundNodes,
    replicasOfFull: full.length,
    models: Object.fromEntries(models),
  };
}

const seeds = Array.from({ length: SEEDS }, (_, index) => index + 1);
const results = {
  equalNodes: seeds.map((seed) => compareModels(seed, true)),
  mixedNodes: seeds.map((seed) => compareModels(seed, false)),
};

printReport('packing', {
  nodes: NODES,
  streams:
    'half: demands until half the capacity of the scarcer resource is asked for; full: until all ' +
    'of it is. Each replica is a workload of its own',
  lowerBound:
    'largest nodes first until they hold the sum of each resource; no packing needs fewer',
  peers: 'models of how others choose, not their programs: best fit by the formula of Nomad',
  results,
  violations: violations.texts,
});
process.exit(violations.exitCode());
