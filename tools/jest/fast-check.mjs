// What `import fc from 'fast-check'` gives in a spec: fast-check with a fixed seed and a number of
// runs that the environment scales, so that a run of all tests passes or fails for its code alone.
//
// CLOUDLESS_PROPERTY_SEED: seed of every property. Default 1; `random` chooses a new seed for each
// property, which a failure prints.
// CLOUDLESS_PROPERTY_SCALE: factor for the number of runs of every property. Default 1.
import fastCheck from '../../node_modules/fast-check/lib/fast-check.js';

export * from '../../node_modules/fast-check/lib/fast-check.js';

/** The number of runs of a property that names none. */
const DEFAULT_RUNS = 100;
/** Fewer runs than these find nothing. */
const MIN_RUNS = 5;

/**
 * Returns the parameters of a property with the seed and the scale of the environment. A seed that
 * the property names itself stays.
 * @throws TypeError when a variable has a value that is not permitted.
 */
export function withEnvironment(parameters = {}, env = process.env) {
  const { numRuns = DEFAULT_RUNS } = parameters;
  const scaled = Math.round(numRuns * readScale(env));
  return {
    ...readSeed(env),
    ...parameters,
    numRuns: Math.max(Math.min(MIN_RUNS, numRuns), scaled),
  };
}

function readScale({ CLOUDLESS_PROPERTY_SCALE: text = '1' }) {
  const scale = Number(text);
  if (!(scale > 0 && scale < Infinity))
    throw new TypeError(`CLOUDLESS_PROPERTY_SCALE is "${text}"; expected a positive number`);
  return scale;
}

function readSeed({ CLOUDLESS_PROPERTY_SEED: text = '1' }) {
  if (text === 'random') return {};
  if (!/^-?\d{1,10}$/.test(text))
    throw new TypeError(
      `CLOUDLESS_PROPERTY_SEED is "${text}"; expected a whole number of up to 10 digits, or "random"`,
    );
  return { seed: Number(text) };
}

/** Runs a property and throws when a counterexample exists, as `assert` of fast-check does. */
export const assert = (property, parameters) =>
  fastCheck.assert(property, withEnvironment(parameters));

export default { ...fastCheck, assert };
