/** Medians of a figure in the first and the second half of a run; undefined when it was never read. */
export interface Halves {
  readonly first: number | undefined;
  readonly second: number | undefined;
}

/**
 * What a benchmark has seen that must not be, beside its figures. The benchmark goes on, so that its figures are printed as
 * well; at its end it exits with {@link Violations.exitCode}.
 */
export class Violations {
  private readonly found: string[] = [];

  /** All violations so far, for the report. */
  get texts(): readonly string[] {
    return this.found;
  }

  /** @param text - Says what is wrong when `holds` is false. */
  check(holds: boolean, text: string): void {
    if (!holds) this.found.push(text);
  }

  /** A count that must be 0; one that is not known is a violation as well. */
  none(count: number, what: string): void {
    this.check(count === 0, `${what}: ${count}, must be 0`);
  }

  /**
   * A figure that must not grow during a run. @param allowed - Growth that is noise: a share of the first half, and a margin.
   */
  flat(what: string, { first, second }: Halves, allowed: { readonly share: number; readonly margin: number }): void {
    if (first === undefined || second === undefined) return this.check(false, `${what} were never read`);
    this.check(second <= first * (1 + allowed.share) + allowed.margin, `${what} grew from ${first} to ${second}`);
  }

  /** Tells each violation in a line of its own. @returns 0, or 1 when there are any. */
  exitCode(tell: (text: string) => void = (text) => void process.stderr.write(`${text}\n`)): 0 | 1 {
    for (const text of this.found) tell(`VIOLATION: ${text}`);
    return this.found.length === 0 ? 0 : 1;
  }
}
