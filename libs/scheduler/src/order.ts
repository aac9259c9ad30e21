/** Compares by UTF-16 code units: the same everywhere, whatever the locale. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Compares numbers, infinite ones too (whose difference is not a number). */
export function compareNumbers(a: number, b: number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The first text in order; undefined when there is none. */
export function firstText(texts: readonly string[]): string | undefined {
  return texts.reduce<string | undefined>(
    (first, text) => (first === undefined || text < first ? text : first),
    undefined,
  );
}
