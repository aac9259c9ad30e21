/** Permits a number of uses in each second, which begins with the first use after the second before. */
export class SecondLimit {
  private secondBegan = -Infinity;
  private used = 0;

  /** @param most - Uses in each second. */
  constructor(private readonly most: number) {}

  /**
   * Counts a use.
   * @param nowMs - Time of the clock, milliseconds.
   * @returns False when the second has had all its uses.
   */
  take(nowMs: number): boolean {
    if (nowMs - this.secondBegan >= 1_000) {
      this.secondBegan = nowMs;
      this.used = 0;
    }
    this.used += 1;
    return this.used <= this.most;
  }
}
