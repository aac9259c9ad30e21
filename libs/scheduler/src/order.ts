/** Compares by UTF-16 code units, independent of the locale. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Compares numbers. Unlike subtraction, works for two infinite values. */
export function compareNumbers(a: number, b: number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Returns the alphabetically first text; undefined when there is none. */
export function smallest(texts: readonly string[]): string | undefined {
  return texts.reduce<string | undefined>(
    (first, text) => (first === undefined || text < first ? text : first),
    undefined,
  );
}
