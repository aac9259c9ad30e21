/** Bounds of expressions. */
export const EXPRESSION_LIMITS = {
  /** Length of the source, bytes of UTF-8. */
  sourceBytes: 4_096,
  /** Brackets within brackets in the source. */
  nesting: 32,
  /** Depth of the syntax tree. `a || b || c` is flat, `a + b + c` has depth 2. */
  depth: 100,
  /** Loops (`all`, `exists`, `exists_one`, `map`, `filter`) within loops. */
  loops: 2,
  /** Items of a list or map that is searched, counted, joined or looped over. */
  items: 1_024,
  /** Length of a text that `+` makes, characters. */
  textLength: 262_144,
  /** Length of a text that `int`, `double` or `duration` parse, characters. */
  parsedLength: 64,
  /** Length of a regular expression, characters. */
  patternLength: 256,
  /** Product of all repetition counts of a regular expression: 100 for `a{10}b{2,10}`. */
  patternRepeats: 1_000,
  /**
   * Steps of an evaluation. A step is a node of the syntax tree in a turn of a loop, 64 characters of
   * a text, or 16 items of a list.
   */
  steps: 50_000,
} as const;

/** The budget of an evaluation is spent. */
export class BudgetSpentError extends Error {
  constructor(steps: number) {
    super(`the evaluation needs more than ${steps} steps`);
    this.name = 'BudgetSpentError';
  }
}

/** Bounded number of steps of one evaluation. */
export class Budget {
  #left: number;

  /** @param steps - Steps that may be spent. */
  constructor(private readonly steps: number = EXPRESSION_LIMITS.steps) {
    this.#left = steps;
  }

  /** Returns true when more steps were requested than the budget has. Stays true. */
  get isSpent(): boolean {
    return this.#left < 0;
  }

  /** @throws {@link BudgetSpentError} when the steps are not left, and at every later call. */
  spend(steps: number): void {
    if (this.#left >= 0) this.#left -= steps;
    if (this.isSpent) throw new BudgetSpentError(this.steps);
  }
}
