/** What happened in a world, line by line: the same seed gives the same lines. */
export class Trace {
  private readonly all: string[] = [];

  /**
   * @param now - Virtual time, milliseconds.
   * @param onLine - Told of each line as it comes.
   */
  constructor(
    private readonly now: () => number,
    private readonly onLine: (line: string) => void = () => undefined,
  ) {}

  get lines(): readonly string[] {
    return this.all;
  }

  /** @param who - `coordinator`, `node-3`, `user-1`, `network`, `fault`… */
  add(who: string, what: string): void {
    const line = `${this.now().toFixed(1).padStart(9)} ${who.padEnd(12)} ${what}`;
    this.all.push(line);
    this.onLine(line);
  }
}
