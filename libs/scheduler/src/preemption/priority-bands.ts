/** The highest priority. The lowest is 0. */
const MAX_PRIORITY = 1_000;

/**
 * Most bands. The sums of a node take memory for each band; clusters use few different priorities,
 * and bounds over wider bands only make more nodes be looked at.
 */
const MAX_BANDS = 16;

/**
 * Ranges of priorities. Each priority in use has a band of its own, up to {@link MAX_BANDS}; then
 * further priorities share the band below them.
 */
export class PriorityBands {
  /** The lowest priority of each band, ascending. The first is 0. */
  private floors: readonly number[] = [0];
  private readonly bandOf = new Uint8Array(MAX_PRIORITY + 1);

  get count(): number {
    return this.floors.length;
  }

  /** Returns the band of a priority. */
  of(priority: number): number {
    return this.bandOf[priority] ?? 0;
  }

  /** Returns the lowest priority of a band. */
  floorOf(band: number): number {
    return this.floors[band] ?? 0;
  }

  /**
   * Gives a priority a band of its own, if it has none and the number of bands allows it.
   * @returns True when the numbers of the bands have changed.
   */
  add(priority: number): boolean {
    if (this.floors.length >= MAX_BANDS || this.floors.includes(priority)) return false;
    this.floors = [...this.floors, priority].sort((a, b) => a - b);
    let band = 0;
    for (let each = 0; each <= MAX_PRIORITY; each += 1) {
      while ((this.floors[band + 1] ?? Infinity) <= each) band += 1;
      this.bandOf[each] = band;
    }
    return true;
  }
}
