/** Keeps what was used last, up to a number of entries and bytes. */
export class BoundedCache<Value> {
  private readonly entries = new Map<string, { readonly value: Value; readonly bytes: number }>();
  private totalBytes = 0;

  /**
   * @param maxEntries - Most entries.
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
    while (this.entries.size > 1 && this.isTooLarge()) this.evictOldest();
  }

  getOrCreate(key: string, create: () => Value): Value {
    const known = this.get(key);
    if (known !== undefined) return known;
    const created = create();
    this.set(key, created);
    return created;
  }

  clear(): void {
    while (this.entries.size > 0) this.evictOldest();
  }

  get bytes(): number {
    return this.totalBytes;
  }

  private isTooLarge(): boolean {
    return this.entries.size > this.maxEntries || this.totalBytes > this.maxBytes;
  }

  private evictOldest(): void {
    for (const [key, { value, bytes }] of this.entries) {
      this.entries.delete(key);
      this.totalBytes -= bytes;
      this.onEvict(value);
      return;
    }
  }
}
