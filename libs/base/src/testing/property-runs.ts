declare const process: { readonly env: Readonly<Record<string, string | undefined>> } | undefined;

/** Of a property, fewer runs than these find nothing. */
const MIN_RUNS = 5;

/**
 * Returns how often a property runs: `count`, multiplied by the environment variable
 * `CLOUDLESS_PROPERTY_SCALE`. CI sets a small scale where it repeats the tests on a second version
 * of Node.js; a nightly run may set a large one.
 * @param count - Runs at scale 1, the default.
 * @returns a whole number, at least 5 or `count`, whichever is less.
 * @throws TypeError when the variable is not a positive number.
 * @example
 * fc.assert(fc.property(arbSpec, holds), { numRuns: propertyRuns(500) });
 */
export function propertyRuns(count: number): number {
  const text = typeof process === 'undefined' ? undefined : process.env['CLOUDLESS_PROPERTY_SCALE'];
  const scale = Number(text ?? 1);
  if (!(scale > 0 && scale < Infinity))
    throw new TypeError(`CLOUDLESS_PROPERTY_SCALE is "${text}"; expected a positive number`);
  return Math.max(Math.min(MIN_RUNS, count), Math.round(count * scale));
}
