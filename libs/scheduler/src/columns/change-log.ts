/**
 * The newest changes of something, as small whole numbers, for readers that catch up when they are
 * needed next. Bounded: a reader that is too far behind is told to read everything anew.
 */
export class ChangeLog {
  private entries: number[] = [];
  private forgotten = 0;

  /** @param limit - Most changes remembered. */
  constructor(private readonly limit: number) {}

  /** Position after the newest change. */
  get position(): number {
    return this.forgotten + this.entries.length;
  }

  push(change: number): void {
    if (this.entries.length >= this.limit) {
      // Half of the entries stay, so that readers which keep up never start anew.
      const dropped = this.entries.length >> 1;
      this.entries = this.entries.slice(dropped);
      this.forgotten += dropped;
    }
    this.entries.push(change);
  }

  /** Lists the changes after `position`; undefined when some of them are forgotten. */
  since(position: number): readonly number[] | undefined {
    return position < this.forgotten ? undefined : this.entries.slice(position - this.forgotten);
  }
}
