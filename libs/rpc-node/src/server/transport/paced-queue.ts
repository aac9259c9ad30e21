/**
 * Spreads work over iterations of the event loop, so that a burst of items does not keep other
 * events waiting: handles a bounded number of items in each iteration, in the order of their
 * arrival.
 */
export class PacedQueue<Item> {
  /** Items that wait for a later iteration, oldest first. */
  private readonly waiting: Item[] = [];
  /** Items handled in this iteration. */
  private handled = 0;
  private isIterationScheduled = false;

  /**
   * @param perIteration - Items handled in one iteration, 1 or more.
   * @param handle - Must not throw.
   * @param nextIteration - Runs `action` in the next iteration of the event loop.
   */
  constructor(
    private readonly perIteration: number,
    private readonly handle: (item: Item) => void,
    private readonly nextIteration: (action: () => void) => void = setImmediate,
  ) {}

  /** Handles an item now, or in a later iteration. */
  add(item: Item): void {
    if (this.waiting.length === 0 && this.handled < this.perIteration) this.run(item);
    else this.waiting.push(item);
    this.schedule();
  }

  private run(item: Item): void {
    this.handled += 1;
    this.handle(item);
  }

  private schedule(): void {
    if (this.isIterationScheduled) return;
    this.isIterationScheduled = true;
    this.nextIteration(() => {
      this.isIterationScheduled = false;
      this.handled = 0;
      for (const item of this.waiting.splice(0, this.perIteration)) this.run(item);
      if (this.handled > 0) this.schedule();
    });
  }
}
