const FIRST_CAPACITY = 16;

/**
 * The newest changes of something, as whole numbers of 32 bits, for readers that catch up when they
 * are needed next. Bounded: a reader that is too far behind is told to read everything anew.
 */
export class ChangeLog {
  private entries = new Int32Array(FIRST_CAPACITY);
  private count = 0;
  private forgotten = 0;

  /** @param limit - Most changes remembered. */
  constructor(private readonly limit: number) {}

  /** Position after the newest change. */
  get position(): number {
    return this.forgotten + this.count;
  }

  push(change: number): void {
    if (this.count === this.entries.length) this.makeRoom();
    this.entries[this.count] = change;
    this.count += 1;
  }

  /**
   * Returns the changes after `position`; undefined when some of them are forgotten. The next
   * change may overwrite them.
   */
  since(position: number): Int32Array | undefined {
    return position < this.forgotten
      ? undefined
      : this.entries.subarray(position - this.forgotten, this.count);
  }

  private makeRoom(): void {
    const { entries } = this;
    if (entries.length < this.limit) {
      this.entries = new Int32Array(Math.min(this.limit, entries.length * 4));
      this.entries.set(entries);
      return;
    }
    // Half of the entries stay, so that readers which keep up never start anew.
    const dropped = this.count >> 1;
    entries.copyWithin(0, dropped, this.count);
    this.forgotten += dropped;
    this.count -= dropped;
  }
}
