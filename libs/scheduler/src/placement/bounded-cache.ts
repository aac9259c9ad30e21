interface Entry<Value> {
  readonly value: Value;
  readonly bytes: number;
}

/**
 * Share of the limit that a full cache drops at once, the oldest entries first. To find the oldest
 * entry of a map takes longer the more entries were deleted before it, so that is done rarely.
 */
const SPARE_SHARE = 1 / 64;

/** Keeps what was used last, up to a number of entries and bytes. */
export class BoundedCache<Value> {
  private readonly entries = new Map<string, Entry<Value>>();
  private totalBytes = 0;

  /**
   * @param maxEntries - Most entries. A 64th of them may be dropped early.
   * @param maxBytes - Most bytes of all entries; the newest entry is kept in any case.
   * @param bytesOf - Size of an entry, asked once when the entry is added.
   * @param onEvict - Called with each entry that is dropped.
   */
  constructor(
    private readonly maxEntries: number,
    private readonly maxBytes: number,
    private readonly bytesOf: (value: Value) => number,
    private readonly onEvict: (value: Value) => void = () => undefined,
  ) {}

  get size(): number {
    return this.entries.size;
  }

  get(key: string): Value | undefined {
    const entry = this.entries.get(key);
    if (entry === undefined) return undefined;
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.value;
  }

  set(key: string, value: Value): void {
    const bytes = this.bytesOf(value);
    this.totalBytes += bytes;
    this.entries.set(key, { value, bytes });
    if (this.isTooLarge()) this.evictOldest();
  }

  getOrCreate(key: string, create: () => Value): Value {
    const known = this.get(key);
    if (known !== undefined) return known;
    const created = create();
    this.set(key, created);
    return created;
  }

  clear(): void {
    for (const [key, entry] of this.entries) this.drop(key, entry);
  }

  get bytes(): number {
    return this.totalBytes;
  }

  private isTooLarge(): boolean {
    return this.entries.size > this.maxEntries || this.totalBytes > this.maxBytes;
  }

  /** Drops the oldest entries until the limits hold; never the newest entry. */
  private evictOldest(): void {
    const isFull = this.entries.size > this.maxEntries;
    let spare = isFull ? Math.floor(this.maxEntries * SPARE_SHARE) : 0;
    for (const [key, entry] of this.entries) {
      if (this.entries.size === 1) return;
      if (!this.isTooLarge() && spare-- <= 0) return;
      this.drop(key, entry);
    }
  }

  private drop(key: string, { value, bytes }: Entry<Value>): void {
    this.entries.delete(key);
    this.totalBytes -= bytes;
    this.onEvict(value);
  }
}
