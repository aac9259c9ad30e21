/** The encoded entries of one kind, and those that changed since the last {@link takeChanges}. */
export class EntrySet {
  private readonly entries = new Map<string, Uint8Array>();
  /** The new bytes of changed entries; undefined: removed. */
  private changes = new Map<string, Uint8Array | undefined>();

  /** Number of entries. */
  get size(): number {
    return this.entries.size;
  }

  /** Number of entries that changed since the last {@link takeChanges}. */
  get changeCount(): number {
    return this.changes.size;
  }

  has(key: string): boolean {
    return this.entries.has(key);
  }

  /**
   * Sets an entry. Equal bytes are no change.
   * @param bytes - The encoded entry; undefined removes the entry.
   */
  set(key: string, bytes: Uint8Array | undefined): void {
    const before = this.entries.get(key);
    if (bytes === undefined) {
      if (before === undefined) return;
      this.entries.delete(key);
    } else {
      if (before !== undefined && isEqual(before, bytes)) return;
      this.entries.set(key, bytes);
    }
    this.changes.set(key, bytes);
  }

  /** All entries. Changes during the iteration may be part of it. */
  values(): Iterable<Uint8Array> {
    return this.entries.values();
  }

  /** Returns and clears the changes; undefined stands for a removed entry. */
  takeChanges(): ReadonlyMap<string, Uint8Array | undefined> {
    const { changes } = this;
    if (changes.size > 0) this.changes = new Map();
    return changes;
  }
}

function isEqual(a: Uint8Array, b: Uint8Array): boolean {
  return a.byteLength === b.byteLength && Buffer.compare(a, b) === 0;
}
