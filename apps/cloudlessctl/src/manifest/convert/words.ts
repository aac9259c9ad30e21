import type { Parsed } from '../../quantity.js';

/**
 * Splits a command line into words as a shell does, without expanding variables and patterns.
 * @example
 * splitWords(`sh -c 'echo "a b"'`) // { value: ['sh', '-c', 'echo "a b"'] }
 */
export function splitWords(text: string): Parsed<readonly string[]> {
  const words: string[] = [];
  let word: string | undefined;
  // A quoted text; an escaped character; other characters.
  for (const [part, single, double, escaped] of text.matchAll(
    /'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|[^\s'"\\]+|\s+|['"\\]/gs,
  )) {
    if (/^\s+$/.test(part)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else if (/^['"\\]$/.test(part)) {
      return {
        problem: `${part === '\\' ? 'a backslash at the end' : `the quote ${part} is not closed`}`,
      };
    } else {
      word = `${word ?? ''}${single ?? double?.replaceAll(/\\(["\\$`])/g, '$1') ?? escaped ?? part}`;
    }
  }
  return { value: word === undefined ? words : [...words, word] };
}

/** Returns a name as a DNS label: `My_App` becomes `my-app`. */
export function toDnsLabel(name: string): string {
  const label = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .slice(0, 63)
    .replaceAll(/^-+|-+$/g, '');
  return label === '' ? 'workload' : label;
}

/**
 * Converts cores such as `0.5`, `2` or `500m` to a CPU quantity of a manifest, which always has a
 * unit: `500m`, `2000m`.
 */
export function toCpu(text: string): Parsed<string> {
  if (/^\d+m$/.test(text)) return { value: text };
  const millis = /^\d*\.?\d+$/.test(text) ? Math.round(Number(text) * 1000) : Number.NaN;
  return Number.isSafeInteger(millis)
    ? { value: `${millis}m` }
    : { problem: `expected a number of cores, got ${JSON.stringify(text)}` };
}
