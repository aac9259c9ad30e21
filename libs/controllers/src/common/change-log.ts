/** Keys that a log remembers at most: more than a cluster has nodes. */
const MAX_KEYS = 65_536;

/** Remembers when each key has last changed, counted in changes of all keys. */
export class ChangeLog {
  private changes = 0;
  private readonly changedAt = new Map<string, number>();
  /** Number of the newest change that is forgotten, with all changes before. */
  private forgottenUpTo = 0;

  /** Number of changes so far. */
  get count(): number {
    return this.changes;
  }

  record(key: string): void {
    this.changes += 1;
    this.changedAt.set(key, this.changes);
    if (this.changedAt.size <= MAX_KEYS) return;
    this.changedAt.clear();
    this.forgottenUpTo = this.changes;
  }

  /**
   * Returns true when a key has not changed since the log had `count` changes. May return false for
   * an unchanged key.
   */
  isUnchangedSince(key: string, count: number): boolean {
    if (count === this.changes) return true;
    return count >= this.forgottenUpTo && (this.changedAt.get(key) ?? 0) <= count;
  }
}
