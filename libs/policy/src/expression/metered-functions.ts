import {
  CelScalar,
  celFunc,
  celList,
  celMethod,
  isCelList,
  isCelMap,
  isCelUint,
  listType,
  type CelFunc,
} from '@bufbuild/cel';
import { isReflectMessage } from '@bufbuild/protobuf/reflect';
import { RE2JS } from '@bufbuild/re2';
import { METER } from './bound-expression.js';
import { EXPRESSION_LIMITS, type Budget } from './budget.js';

/** Characters of a text that cost one step. */
const CHARACTERS_PER_STEP = 64;
/** Items of a list that cost one step. */
const ITEMS_PER_STEP = 16;

const { BOOL, DYN, INT, STRING } = CelScalar;
const LIST = listType(DYN);

/** A regular expression and the factor of its cost. */
interface Pattern {
  readonly regex: RE2JS;
  /** Upper bound of the states of the automaton. */
  readonly states: number;
}

/** Regular expressions of one expression by their text. */
export type Patterns = Map<string, Pattern>;

/**
 * Compiles a regular expression in RE2 syntax, which is matched in linear time.
 * @throws An error with a message for people.
 */
export function compilePattern(text: string): Pattern {
  if (text.length > EXPRESSION_LIMITS.patternLength)
    throw new Error(
      `the regular expression has ${text.length} characters; at most ${EXPRESSION_LIMITS.patternLength} are allowed`,
    );
  let repeats = 1;
  for (const [, min = '', max = ''] of text.matchAll(/\{(\d+)(?:,(\d*))?\}/g))
    repeats *= Math.max(1, Number(min), Number(max));
  if (repeats > EXPRESSION_LIMITS.patternRepeats)
    throw new Error(
      `the repetition counts of the regular expression multiply to ${repeats}; at most ${EXPRESSION_LIMITS.patternRepeats} is allowed`,
    );
  return { regex: RE2JS.compile(text), states: text.length * repeats };
}

/**
 * Returns functions that spend the budget: those that {@link METER} names, and replacements for the
 * functions of CEL whose cost depends on the data.
 * @param budgetNow - Returns the budget of the current evaluation.
 */
export function meteredFunctions(budgetNow: () => Budget, patterns: Patterns): CelFunc[] {
  const spendText = (length: number) => {
    budgetNow().spend(1 + Math.ceil(length / CHARACTERS_PER_STEP));
  };
  const checkSize = (size: number) => {
    if (size > EXPRESSION_LIMITS.items)
      throw new Error(`a list has ${size} items; at most ${EXPRESSION_LIMITS.items} are allowed`);
    budgetNow().spend(1 + Math.ceil(size / ITEMS_PER_STEP));
  };
  const functions = [
    celFunc(METER.charge, [INT], BOOL, (steps) => {
      budgetNow().spend(Number(steps));
      return true;
    }),
    celFunc(METER.scalar, [DYN], DYN, (value) => {
      if (typeof value === 'string') spendText(value.length);
      else if (!isSingle(value)) throw new Error('only single values can be compared');
      return value;
    }),
    celFunc(METER.sized, [DYN], DYN, (value) => {
      if (typeof value === 'string') spendText(value.length);
      else if (isCelList(value) || isCelMap(value)) checkSize(value.size);
      else throw new Error('a text, a list or a map is needed');
      return value;
    }),
    celFunc(METER.short, [DYN], DYN, (value) => {
      if (typeof value === 'string' && value.length > EXPRESSION_LIMITS.parsedLength)
        throw new Error(`a text of ${value.length} characters is too long to be parsed`);
      return value;
    }),
    celFunc('_+_', [STRING, STRING], STRING, (left, right) => {
      const length = left.length + right.length;
      if (length > EXPRESSION_LIMITS.textLength)
        throw new Error(`a text would have ${length} characters`);
      spendText(length);
      return left + right;
    }),
    celFunc('_+_', [LIST, LIST], LIST, (left, right) => {
      checkSize(left.size + right.size);
      return celList([...left, ...right]);
    }),
    celMethod('contains', STRING, [STRING], BOOL, function (part) {
      // The search of a hostile text costs the product of both lengths.
      const factor = 1 + Math.ceil(part.length / CHARACTERS_PER_STEP);
      budgetNow().spend(1 + Math.ceil((this.length * factor) / CHARACTERS_PER_STEP));
      return this.includes(part);
    }),
    celMethod('matches', STRING, [STRING], BOOL, function (text) {
      const pattern = patterns.get(text);
      if (pattern === undefined) throw new Error('an unknown regular expression');
      budgetNow().spend(1 + Math.ceil((this.length * pattern.states) / CHARACTERS_PER_STEP));
      return pattern.regex.test(this.valueOf());
    }),
  ];
  return functions as unknown as CelFunc[];
}

function isSingle(value: unknown): boolean {
  if (['bigint', 'number', 'boolean'].includes(typeof value) || isCelUint(value)) return true;
  return (
    isReflectMessage(value) &&
    ['google.protobuf.Duration', 'google.protobuf.Timestamp'].includes(value.desc.typeName)
  );
}
