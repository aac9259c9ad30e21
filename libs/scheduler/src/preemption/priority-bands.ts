/** The highest priority. The lowest is 0. */
const MAX_PRIORITY = 1_000;

/** Most and fewest bands that a limit allows. Clusters use few different priorities. */
const [MAX_BANDS, MIN_BANDS] = [64, 8];

/** Sums that all nodes together may have: each takes about 150 bytes. */
const MAX_SUMS = 512_000;

/**
 * Ranges of priorities. Each priority in use has a band of its own, up to a limit; then further
 * priorities share the band below them, which only makes more nodes be looked at.
 */
export class PriorityBands {
  /** The lowest priority of each band, ascending. The first is 0. */
  private lowest: readonly number[] = [0];
  private readonly bandOf = new Uint8Array(MAX_PRIORITY + 1);

  get count(): number {
    return this.lowest.length;
  }

  /** Returns the band of a priority. */
  of(priority: number): number {
    return this.bandOf[priority] ?? 0;
  }

  /** Returns the lowest priority of a band. */
  lowestPriorityOf(band: number): number {
    return this.lowest[band] ?? 0;
  }

  /**
   * Gives a priority a band of its own, if it has none and the number of bands allows it.
   * @param nodes - Number of nodes, each of which has sums for each band.
   * @returns True when the numbers of the bands have changed.
   */
  add(priority: number, nodes: number): boolean {
    if (this.lowest.includes(priority)) return false;
    const limit = Math.max(MIN_BANDS, Math.min(MAX_BANDS, Math.floor(MAX_SUMS / nodes)));
    if (this.lowest.length >= limit) return false;
    this.lowest = [...this.lowest, priority].sort((a, b) => a - b);
    let band = 0;
    for (let each = 0; each <= MAX_PRIORITY; each += 1) {
      while ((this.lowest[band + 1] ?? Infinity) <= each) band += 1;
      this.bandOf[each] = band;
    }
    return true;
  }
}
