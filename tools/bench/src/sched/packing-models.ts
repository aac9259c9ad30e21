import type { Random } from '@cloudless/base';

/** Amounts of the two resources that the comparison considers. */
export interface Amounts {
  readonly cpuMillis: number;
  readonly memoryMib: number;
}

/** A way to choose a node for one replica after the other. */
export interface PackingModel {
  /**
   * Chooses a node and reserves the replica there.
   * @param replica - Number of the replica in the stream.
   * @returns The index of the node, or undefined when the model finds none.
   */
  place(replica: number, demand: Amounts): number | undefined;
}

/**
 * Fewest nodes that could hold the demand: the largest nodes first until they hold the sum of each
 * resource. No packing needs fewer; the best packing may need more.
 */
export function computeLowerBound(nodes: readonly Amounts[], demands: readonly Amounts[]): number {
  const needed = (amount: (amounts: Amounts) => number): number => {
    let rest = demands.reduce((sum, demand) => sum + amount(demand), 0);
    const capacities = nodes.map(amount).sort((a, b) => b - a);
    let used = 0;
    while (rest > 0 && used < capacities.length) rest -= capacities[used++] ?? 0;
    return used;
  };
  return Math.max(
    needed(({ cpuMillis }) => cpuMillis),
    needed(({ memoryMib }) => memoryMib),
  );
}

/**
 * Best fit over a sample of the nodes, as schedulers choose that look at a part of the cluster:
 * nodes are drawn at random without repetition until `sample` of them fit, and the best of these
 * wins. The score is that of Nomad's bin packing (`ScoreFitBinPack`: 20 - 10^freeCpu - 10^freeMemory,
 * free as a share after the placement). With a sample of all nodes nothing is left to chance.
 */
export class SampledBestFit implements PackingModel {
  private readonly free: { cpuMillis: number; memoryMib: number }[];
  private readonly order: Int32Array;

  constructor(
    private readonly nodes: readonly Amounts[],
    private readonly sample: number,
    private readonly random: Random,
  ) {
    this.free = nodes.map((node) => ({ ...node }));
    this.order = Int32Array.from(nodes.keys());
  }

  place(_replica: number, demand: Amounts): number | undefined {
    let best: number | undefined;
    let bestScore = Number.NEGATIVE_INFINITY;
    let fitting = 0;
    for (let looked = 0; looked < this.order.length && fitting < this.sample; looked += 1) {
      const index = this.drawNext(looked);
      const free = this.free[index];
      if (free === undefined || !fits(free, demand)) continue;
      fitting += 1;
      const score = this.score(index, demand);
      if (score > bestScore || (score === bestScore && index < (best ?? Infinity)))
        [best, bestScore] = [index, score];
    }
    const chosen = best === undefined ? undefined : this.free[best];
    if (chosen !== undefined) {
      chosen.cpuMillis -= demand.cpuMillis;
      chosen.memoryMib -= demand.memoryMib;
    }
    return best;
  }

  /** The next node of a shuffle that goes on only as far as it is looked at. */
  private drawNext(looked: number): number {
    const { order, random } = this;
    const other = looked + Math.floor(random.next() * (order.length - looked));
    const index = order[other] ?? 0;
    order[other] = order[looked] ?? 0;
    order[looked] = index;
    return index;
  }

  private score(index: number, demand: Amounts): number {
    const node = this.nodes[index];
    const free = this.free[index];
    if (node === undefined || free === undefined) return Number.NEGATIVE_INFINITY;
    const freeCpu = (free.cpuMillis - demand.cpuMillis) / node.cpuMillis;
    const freeMemory = (free.memoryMib - demand.memoryMib) / node.memoryMib;
    return 20 - 10 ** freeCpu - 10 ** freeMemory;
  }
}

export function fits(free: Amounts, demand: Amounts): boolean {
  return free.cpuMillis >= demand.cpuMillis && free.memoryMib >= demand.memoryMib;
}
