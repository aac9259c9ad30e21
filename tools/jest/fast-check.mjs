// What `import fc from 'fast-check'` gives in a spec: fast-check with a fixed seed and a number of
// runs that the environment scales, so that a run of all tests passes or fails for its code alone.
//
// The unit `binary` of strings costs little here: fast-check would first build a table of all 1.1
// million characters, in each spec file. The strings are the same.
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

/** Code points before the surrogates, which are no characters, and the number of surrogates. */
const BEFORE_SURROGATES = 0xd800;
const SURROGATES = 0x800;
const LAST_INDEX = 0x10ffff - SURROGATES;

/** Any character, by its index among all characters: as the unit `binary`, without a table. */
const anyCharacter = fastCheck.nat({ max: LAST_INDEX }).map(
  (index) => String.fromCodePoint(index < BEFORE_SURROGATES ? index : index + SURROGATES),
  (text) => {
    const code = typeof text === 'string' ? text.codePointAt(0) : undefined;
    const isCharacter =
      code !== undefined &&
      text === String.fromCodePoint(code) &&
      (code < BEFORE_SURROGATES || code >= BEFORE_SURROGATES + SURROGATES);
    if (!isCharacter) throw new TypeError('not one character');
    return code < BEFORE_SURROGATES ? code : code - SURROGATES;
  },
);

/** Returns strings as `string` of fast-check does. */
export const string = (constraints = {}) =>
  fastCheck.string(
    constraints.unit === 'binary' ? { ...constraints, unit: anyCharacter } : constraints,
  );

export default { ...fastCheck, assert, string };
