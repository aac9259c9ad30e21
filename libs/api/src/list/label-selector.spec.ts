import fc from 'fast-check';
import { InvalidInputError } from '@cloudless/base';
import { matchesLabels, parseLabelSelector, type LabelSelector } from '../index.js';

describe('parseLabelSelector', () => {
  it.each<{ text: string; selector: LabelSelector }>([
    { text: '', selector: [] },
    { text: '  ', selector: [] },
    { text: 'a=b', selector: [{ kind: 'in', key: 'a', values: ['b'] }] },
    { text: ' a == b ', selector: [{ kind: 'in', key: 'a', values: ['b'] }] },
    { text: 'a=', selector: [{ kind: 'in', key: 'a', values: [''] }] },
    { text: 'a!=b', selector: [{ kind: 'notIn', key: 'a', values: ['b'] }] },
    { text: 'a', selector: [{ kind: 'exists', key: 'a' }] },
    { text: '!a', selector: [{ kind: 'absent', key: 'a' }] },
    { text: 'a in (b,c)', selector: [{ kind: 'in', key: 'a', values: ['b', 'c'] }] },
    { text: 'a notin ( b , c )', selector: [{ kind: 'notIn', key: 'a', values: ['b', 'c'] }] },
    { text: 'a in ()', selector: [{ kind: 'in', key: 'a', values: [''] }] },
    { text: 'in', selector: [{ kind: 'exists', key: 'in' }] },
    { text: 'in in (in)', selector: [{ kind: 'in', key: 'in', values: ['in'] }] },
    {
      text: 'example.com/tier=web, zone in (a,b),!old',
      selector: [
        { kind: 'in', key: 'example.com/tier', values: ['web'] },
        { kind: 'in', key: 'zone', values: ['a', 'b'] },
        { kind: 'absent', key: 'old' },
      ],
    },
  ])('parses "$text"', ({ text, selector }) => {
    expect(parseLabelSelector(text)).toEqual(selector);
  });

  it.each([
    { text: 'a,', part: '' },
    { text: ',', part: '' },
    { text: '=b', part: '=b' },
    { text: 'a=b=c', part: 'a=b=c' },
    { text: 'a===b', part: 'a===b' },
    { text: 'a b', part: 'a b' },
    { text: 'a=b c', part: 'a=b c' },
    { text: 'a in b', part: 'a in b' },
    { text: 'ok, a in (b', part: 'a in (b' },
    { text: 'a in (b))', part: 'a in (b))' },
    { text: 'a in (b c)', part: 'a in (b c)' },
    { text: 'a in (b=c,d)', part: 'a in (b=c,d)' },
    { text: '-a', part: '-a' },
    { text: 'a/=x', part: 'a/=x' },
    { text: '!a=b', part: '!a=b' },
    { text: 'ä=b', part: 'ä=b' },
  ])('rejects "$text"', ({ text, part }) => {
    const message = `cannot parse "${part}"; expected key=value, key!=value, key, !key, key in (a,b) or key notin (a,b)`;
    expect(() => parseLabelSelector(text)).toThrow(
      expect.objectContaining({ violations: [{ field: 'label_selector', message }] }),
    );
  });

  it('names the given field in the error', () => {
    expect(() => parseLabelSelector('=', 'selector')).toThrow(
      expect.objectContaining({ violations: [{ field: 'selector', message: expect.any(String) }] }),
    );
  });

  it('returns a usable selector or throws an InvalidInputError for any text', () => {
    const token = fc.constantFrom(
      'a',
      'b.c/d',
      '=',
      '==',
      '!=',
      '!',
      ',',
      '(',
      ')',
      ' ',
      ' in ',
      ' notin ',
      '-',
      'é',
      '\n',
    );
    const text = fc.oneof(
      fc.string(),
      fc.array(token, { maxLength: 12 }).map((parts) => parts.join('')),
    );
    fc.assert(
      fc.property(
        text,
        fc.dictionary(fc.constantFrom('a', 'b.c/d', '__proto__'), fc.constantFrom('', 'a', 'b')),
        (given, labels) => {
          try {
            expect(typeof matchesLabels(parseLabelSelector(given), labels)).toBe('boolean');
          } catch (reason) {
            expect(reason).toBeInstanceOf(InvalidInputError);
          }
        },
      ),
      { numRuns: 500 },
    );
  });

  it('parses the text of any selector to an equal selector', () => {
    const key = fc.stringMatching(/^[A-Za-z0-9]([A-Za-z0-9._/-]{0,5}[A-Za-z0-9])?$/);
    const value = fc.stringMatching(/^[A-Za-z0-9._-]{0,5}$/);
    const condition = fc.oneof(
      fc.record({
        kind: fc.constantFrom('in' as const, 'notIn' as const),
        key,
        values: fc.array(value, { minLength: 1, maxLength: 3 }),
      }),
      fc.record({ kind: fc.constantFrom('exists' as const, 'absent' as const), key }),
    );
    fc.assert(
      fc.property(fc.array(condition, { minLength: 1, maxLength: 4 }), (selector) => {
        const text = selector.map((term) =>
          'values' in term
            ? `${term.key} ${term.kind.toLowerCase()} (${term.values.join(',')})`
            : `${term.kind === 'absent' ? '!' : ''}${term.key}`,
        );
        expect(parseLabelSelector(text.join(','))).toEqual(selector);
      }),
    );
  });

  it('parses or rejects the longest allowed texts without excessive backtracking', () => {
    for (const text of [
      'a'.repeat(4_096),
      `a${' '.repeat(4_095)}`,
      '('.repeat(4_096),
      `a in (${','.repeat(4_000)})`,
      `a${'.a'.repeat(2_000)}.`,
    ]) {
      try {
        parseLabelSelector(text);
      } catch (reason) {
        expect(reason).toBeInstanceOf(InvalidInputError);
      }
    }
  });
});

describe('matchesLabels', () => {
  const labels = { app: 'web', zone: 'a', empty: '' };
  it.each([
    { text: '', matches: true },
    { text: 'app=web', matches: true },
    { text: 'app=web,zone=b', matches: false },
    { text: 'app in (db,web)', matches: true },
    { text: 'missing in (web)', matches: false },
    { text: 'app!=web', matches: false },
    { text: 'missing!=web', matches: true },
    { text: 'app notin (db)', matches: true },
    { text: 'empty', matches: true },
    { text: 'empty=', matches: true },
    { text: 'missing=', matches: false },
    { text: '!empty', matches: false },
    { text: '!missing', matches: true },
    { text: 'toString', matches: false },
    { text: '!constructor', matches: true },
  ])('returns $matches for the selector "$text"', ({ text, matches }) => {
    expect(matchesLabels(parseLabelSelector(text), labels)).toBe(matches);
  });

  it('returns true for exactly one of a condition and its negation', () => {
    const pairs = [
      ['a=x', 'a!=x'],
      ['a in (x,y)', 'a notin (x,y)'],
      ['a', '!a'],
    ] as const;
    fc.assert(
      fc.property(
        fc.dictionary(fc.constantFrom('a', 'b'), fc.constantFrom('x', 'y', 'z')),
        fc.constantFrom(...pairs),
        (given, [condition, negation]) => {
          expect(matchesLabels(parseLabelSelector(condition), given)).toBe(
            !matchesLabels(parseLabelSelector(negation), given),
          );
        },
      ),
    );
  });
});
