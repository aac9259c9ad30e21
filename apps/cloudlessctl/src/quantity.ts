/** A parsed value, or the problem of the text as a message for the user. */
export type Parsed<Value> = { readonly value: Value } | { readonly problem: string };

/** Greatest number of replicas that the API accepts. */
export const MAX_REPLICAS = 1_000_000;

/** Nanoseconds of each unit of a duration. */
const NANOS_PER: Readonly<Record<string, bigint>> = {
  ns: 1n,
  us: 1_000n,
  ms: 1_000_000n,
  s: 1_000_000_000n,
  m: 60_000_000_000n,
  h: 3_600_000_000_000n,
  d: 86_400_000_000_000n,
};

/** Maximum of google.protobuf.Duration, about 10 000 years. */
const MAX_DURATION_NANOS = 315_576_000_000n * 1_000_000_000n;

/**
 * Parses a duration such as `500ms`, `2s`, `1.5s`, `10m` or `1h30m`. Units: d, h, m, s, ms, us, ns,
 * each at most once, larger units first.
 * @returns Nanoseconds.
 * @example
 * parseDuration('1h30m') // { value: 5_400_000_000_000n }
 */
export function parseDuration(text: string): Parsed<bigint> {
  const problem = {
    problem: `expected a duration such as "500ms", "2s" or "1h30m", got ${quoteText(text)}`,
  };
  const match =
    text.length > MAX_LENGTH
      ? null
      : /^(-?)((?:\d+(?:\.\d{1,9})?(?:d|h|ms|m|s|us|ns))+)$/.exec(text);
  if (match === null)
    return /^\d+$/.test(text)
      ? { problem: `${problem.problem}; write "${text}s" for seconds` }
      : problem;
  let total = 0n;
  let smallest: bigint | undefined;
  for (const [, whole = '', fraction = '', unit = ''] of (match[2] ?? '').matchAll(
    /(\d+)(?:\.(\d{1,9}))?(d|h|ms|m|s|us|ns)/g,
  )) {
    const nanos = NANOS_PER[unit] ?? 0n;
    if (smallest !== undefined && nanos >= smallest) return problem;
    smallest = nanos;
    const part = multiplyDecimal(whole, fraction, nanos);
    if (part === undefined) return { problem: `${quoteText(text)} is finer than a nanosecond` };
    total += part;
  }
  if (total > MAX_DURATION_NANOS)
    return { problem: `${quoteText(text)} is longer than 315576000000s` };
  return { value: match[1] === '-' ? -total : total };
}

/** Factor of each suffix of a quantity. */
const MULTIPLES: Readonly<Record<string, bigint>> = {
  '': 1n,
  k: 1_000n,
  K: 1_000n,
  M: 1_000_000n,
  G: 1_000_000_000n,
  T: 1_000_000_000_000n,
  P: 1_000_000_000_000_000n,
  Ki: 1n << 10n,
  Mi: 1n << 20n,
  Gi: 1n << 30n,
  Ti: 1n << 40n,
  Pi: 1n << 50n,
};

/**
 * Parses a quantity such as `64Mi`, `500M`, `1.5G` or a whole number. The suffixes k, M, G, T, P
 * are powers of 1000; Ki, Mi, Gi, Ti, Pi are powers of 1024.
 * @param example - Description of the expected text, for the error message.
 * @example
 * parseQuantity('64Mi') // { value: 67_108_864n }
 */
export function parseQuantity(
  text: string,
  example = 'a quantity such as 67108864, "64Mi" or "500M"',
): Parsed<bigint> {
  const problem = { problem: `expected ${example}, got ${quoteText(text)}` };
  const match =
    text.length > MAX_LENGTH ? null : /^(-?)(\d+)(?:\.(\d+))?([kKMGTP]?|[KMGTP]i)$/.exec(text);
  if (match === null) return problem;
  const [, sign, whole = '', fraction = '', suffix = ''] = match;
  const value = multiplyDecimal(whole, fraction, MULTIPLES[suffix] ?? 1n);
  if (value === undefined) return { problem: `${quoteText(text)} is not a whole number of units` };
  return { value: sign === '-' ? -value : value };
}

/**
 * Parses a CPU quantity: `500m` is 500 thousandths of a core, `0.5` and `2` are cores.
 * @returns Thousandths of a core.
 */
export function parseCpu(text: string): Parsed<bigint> {
  const match = text.length > MAX_LENGTH ? null : /^(\d+)(?:\.(\d+))?(m?)$/.exec(text);
  if (match === null)
    return {
      problem: `expected a CPU quantity such as "500m" or "0.5", got ${quoteText(text)}`,
    };
  const [, whole = '', fraction = '', milli] = match;
  const value = multiplyDecimal(whole, fraction, milli === 'm' ? 1n : 1000n);
  return value === undefined
    ? { problem: `${quoteText(text)} is finer than a thousandth of a core` }
    : { value };
}

/** Quotes a text for messages, and truncates a text of more than 60 characters. */
export function quoteText(text: string): string {
  return JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text);
}

/** Characters of a text that a message shows. */
const MAX_SHOWN = 60;

/** Longest text that is parsed. A longer text cannot be a sensible number. */
const MAX_LENGTH = 64;

/** Returns `whole.fraction * unit`; undefined when the product is not a whole number. */
function multiplyDecimal(whole: string, fraction: string, unit: bigint): bigint | undefined {
  const denominator = 10n ** BigInt(fraction.length);
  const product = BigInt(whole + fraction) * unit;
  return product % denominator === 0n ? product / denominator : undefined;
}
