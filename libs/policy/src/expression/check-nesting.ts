import { EXPRESSION_LIMITS } from './budget.js';

/**
 * Refuses sources whose brackets are nested too deeply, before the parser recurses into them.
 * Brackets in texts do not count.
 * @throws An error with a message for people.
 */
export function checkNesting(source: string): void {
  let depth = 0;
  for (let index = 0; index < source.length; index += 1) {
    const symbol = source.charAt(index);
    if (symbol === '"' || symbol === "'") index = findEndOfText(source, index);
    else if ('([{'.includes(symbol)) depth += 1;
    else if (')]}'.includes(symbol)) depth -= 1;
    if (depth > EXPRESSION_LIMITS.nesting)
      throw new Error(`brackets are nested more than ${EXPRESSION_LIMITS.nesting} deep`);
  }
}

function findEndOfText(source: string, start: number): number {
  const one = source.charAt(start);
  const quote = source.startsWith(one.repeat(3), start) ? one.repeat(3) : one;
  const isRaw = /[rR][bB]?$|[bB][rR]$/.test(source.slice(Math.max(0, start - 2), start));
  for (let index = start + quote.length; index < source.length; index += 1) {
    if (source.charAt(index) === '\\' && !isRaw) index += 1;
    else if (source.startsWith(quote, index)) return index + quote.length - 1;
  }
  return source.length;
}
