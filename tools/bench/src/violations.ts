/**
 * Medians of a figure in the first and the second half of a run; undefined when the figure was
 * never read.
 */
export interface Halves {
  readonly first: number | undefined;
  readonly second: number | undefined;
}

/**
 * Collects violations of the expectations of a benchmark. The benchmark continues and prints its
 * figures; at its end it exits with {@link Violations.exitCode}.
 */
export class Violations {
  private readonly found: string[] = [];
  private readonly slow: string[] = [];

  /** All violations so far, for the report, also those of {@link checkPace}. */
  get texts(): readonly string[] {
    return [...this.found, ...this.slow];
  }

  /** Records the violation `text` when `holds` is false. */
  check(holds: boolean, text: string): void {
    if (!holds) this.found.push(text);
  }

  /**
   * Records `text` when the run has not got as far as it should have. That fails a run too, but says
   * more about the machine: `npm test` runs a step once more that has no other violation.
   */
  checkPace(holds: boolean, text: string): void {
    if (!holds) this.slow.push(text);
  }

  /** Checks that a count is 0; an unknown count (NaN) is a violation as well. */
  checkZero(count: number, name: string): void {
    this.check(count === 0, `${name}: ${count}, must be 0`);
  }

  /**
   * Checks that a figure does not grow during a run.
   * @param allowed - Growth that counts as noise: a share of the first half, and a margin.
   */
  checkFlat(
    name: string,
    { first, second }: Halves,
    allowed: { readonly share: number; readonly margin: number },
  ): void {
    if (first === undefined || second === undefined)
      return this.check(false, `${name} were never read`);
    this.check(
      second <= first * (1 + allowed.share) + allowed.margin,
      `${name} grew from ${first} to ${second}`,
    );
  }

  /**
   * Writes a line for each violation, and one for each failed check of the pace.
   * @param writeLine - Default: standard error.
   * @returns 1 when there is a violation, else 0.
   */
  exitCode(
    writeLine: (text: string) => void = (text) => void process.stderr.write(`${text}\n`),
  ): 0 | 1 {
    for (const text of this.found) writeLine(`VIOLATION: ${text}`);
    for (const text of this.slow) writeLine(`TOO SLOW: ${text}`);
    return this.texts.length === 0 ? 0 : 1;
  }
}
