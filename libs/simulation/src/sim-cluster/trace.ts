/** Events of a world, line by line. Equal seeds give equal lines. */
export class Trace {
  private readonly added: string[] = [];

  /**
   * @param now - Returns virtual time, milliseconds.
   * @param onLine - Called for each line.
   */
  constructor(
    private readonly now: () => number,
    private readonly onLine: (line: string) => void = () => undefined,
  ) {}

  get lines(): readonly string[] {
    return this.added;
  }

  /**
   * Adds a line with the virtual time.
   * @param source - `coordinator`, `node-3`, `user-1`, `network`, `fault` and so on.
   */
  add(source: string, text: string): void {
    const line = `${this.now().toFixed(1).padStart(9)} ${source.padEnd(12)} ${text}`;
    this.added.push(line);
    this.onLine(line);
  }
}
