import { formatWord } from '../output/human.js';
import { suggestSimilar } from '../suggest.js';

/**
 * Finds the name of an enum value in any usual spelling: `ON_FAILURE` for `OnFailure`, `on-failure`
 * or `on_failure`.
 * @param enumNames - The names in the schema.
 */
export function findEnumName(text: string, enumNames: readonly string[]): string | undefined {
  return enumNames.find((name) => simplify(name) === simplify(text));
}

/**
 * Returns the end of an error message for a text that is no value of an enum, with the words that
 * tables show: `expected one of Always, OnFailure, Never, got "nver"; did you mean Never?`.
 */
export function describeExpectedEnum(text: string, enumNames: readonly string[]): string {
  const words = enumNames.map(formatWord);
  return `expected one of ${words.join(', ')}, got ${JSON.stringify(text)}${suggestSimilar(text, words)}`;
}

const simplify = (text: string): string => text.toLowerCase().replaceAll(/[_-]/g, '');
