/** Keeps what was used last, up to a number of entries and bytes. */
export class BoundedCache<Value> {
  private readonly entries = new Map<string, Value>();

  /**
   * @param maxEntries - Most entries.
   * @param maxBytes - Most bytes of all entries; the newest entry is kept in any case.
   * @param bytesOf - Size of an entry.
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
    const value = this.entries.get(key);
    if (value === undefined) return undefined;
    this.entries.delete(key);
    this.entries.set(key, value);
    return value;
  }

  set(key: string, value: Value): void {
    this.entries.set(key, value);
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

  values(): Iterable<Value> {
    return this.entries.values();
  }

  get bytes(): number {
    let sum = 0;
    for (const value of this.entries.values()) sum += this.bytesOf(value);
    return sum;
  }

  private isTooLarge(): boolean {
    return this.entries.size > this.maxEntries || this.bytes > this.maxBytes;
  }

  private evictOldest(): void {
    for (const [key, value] of this.entries) {
      this.entries.delete(key);
      this.onEvict(value);
      return;
    }
  }
}
