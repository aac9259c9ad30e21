import { DIMENSIONS, type Demand } from './demand.js';

/** Nodes whose sums are stored together. */
const NODES_AT_ONCE = 64;

/**
 * What each node would have if all reservations below a band left, in columns by level and amount.
 * Level 0 is what the node has when its leaving replicas have ended; level n adds what the first n
 * bands hold. The columns of a level are compared with a demand in one run over memory.
 */
export class ReachColumns {
  private readonly columns: Float64Array;

  /**
   * @param capacity - Number of nodes that the columns have room for.
   * @param bands - Number of priority bands.
   */
  constructor(
    private readonly capacity: number,
    private readonly bands: number,
  ) {
    this.columns = new Float64Array(capacity * DIMENSIONS * (bands + 1));
  }

  /**
   * Stores the sums of some nodes. Nodes beside each other share cache lines, so that many at once
   * take a fraction of the time that they take one by one.
   * @param from - First index.
   * @param end - Index after the last one.
   * @param free - Amounts of all nodes, by index, then dimension.
   * @param held - What each band and the bands below it hold, by index, then band, then dimension.
   */
  set(from: number, end: number, free: Float64Array, held: Float64Array): void {
    for (let first = from; first < end; first += NODES_AT_ONCE)
      this.setBlock(first, Math.min(end, first + NODES_AT_ONCE), free, held);
  }

  private setBlock(from: number, end: number, free: Float64Array, held: Float64Array): void {
    const { columns, capacity, bands } = this;
    const perNode = bands * DIMENSIONS;
    for (let index = from; index < end; index += 1)
      for (let dimension = 0; dimension < DIMENSIONS; dimension += 1)
        columns[dimension * capacity + index] = free[index * DIMENSIONS + dimension] ?? 0;
    for (let sum = 0; sum < perNode; sum += 1) {
      const dimension = sum % DIMENSIONS;
      const atColumn = (DIMENSIONS + sum) * capacity;
      for (let index = from; index < end; index += 1)
        columns[atColumn + index] =
          (free[index * DIMENSIONS + dimension] ?? 0) + (held[index * perNode + sum] ?? 0);
    }
  }

  /**
   * Returns the lowest level at which some node has enough; undefined when none has at `levels`. What
   * a node has grows with the level, so that the level is found by halving.
   */
  findLowestLevel(
    size: number,
    isPossible: (index: number) => boolean,
    demand: Demand,
    levels: number,
  ): number | undefined {
    if (this.findFirst(levels, 0, size, isPossible, demand) === undefined) return undefined;
    let low = 0;
    let high = levels;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.findFirst(middle, 0, size, isPossible, demand) === undefined) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Lists the nodes that have enough at a level. */
  listAt(
    level: number,
    size: number,
    isPossible: (index: number) => boolean,
    demand: Demand,
  ): readonly number[] {
    const indexes: number[] = [];
    for (let next: number | undefined = 0; ; next += 1) {
      next = this.findFirst(level, next, size, isPossible, demand);
      if (next === undefined) return indexes;
      indexes.push(next);
    }
  }

  /** Returns the first node from an index on that has enough at a level. */
  private findFirst(
    level: number,
    from: number,
    size: number,
    isPossible: (index: number) => boolean,
    { fixed, amounts }: Demand,
  ): number | undefined {
    const { columns, capacity } = this;
    const atLevel = level * DIMENSIONS * capacity;
    const [first = 0] = fixed;
    const atFirst = atLevel + first * capacity;
    const least = amounts[first] ?? 0;
    for (let index = from; index < size; index += 1) {
      // The first amount, mostly the CPU, excludes most nodes.
      if ((columns[atFirst + index] ?? 0) < least) continue;
      let each = 1;
      for (; each < fixed.length; each += 1) {
        const dimension = fixed[each] ?? 0;
        if ((columns[atLevel + dimension * capacity + index] ?? 0) < (amounts[dimension] ?? 0))
          break;
      }
      if (each === fixed.length && isPossible(index)) return index;
    }
    return undefined;
  }
}
