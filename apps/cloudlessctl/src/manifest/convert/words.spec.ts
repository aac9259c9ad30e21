import fc from 'fast-check';
import { splitWords, toCpu, toDnsLabel } from './words.js';

/** Quotes a word for a shell. */
const quote = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`;

describe('splitWords', () => {
  it('reads back words that are quoted for a shell', () => {
    fc.assert(
      fc.property(fc.array(fc.string()), (words) => {
        expect(splitWords(words.map(quote).join(' '))).toEqual({ value: words });
      }),
    );
  });

  it.each([
    ['sh -c "echo \\"hi\\" $HOME"', ['sh', '-c', 'echo "hi" $HOME']],
    ["a'b c'd", ['ab cd']],
    ['a\\ b', ['a b']],
    ['""', ['']],
    ['  ', []],
  ])('splits %j', (text, words) => {
    expect(splitWords(text)).toEqual({ value: words });
  });

  it.each([
    ["echo 'a", "the quote ' is not closed"],
    ['echo "a', 'the quote " is not closed'],
    ['echo \\', 'a backslash at the end'],
  ])('refuses %j', (text, problem) => {
    expect(splitWords(text)).toEqual({ problem });
  });
});

describe('toDnsLabel', () => {
  it.each([
    ['My_App.v2', 'my-app-v2'],
    ['-x-', 'x'],
    ['___', 'workload'],
    ['a'.repeat(80), 'a'.repeat(63)],
  ])('converts %s to %s', (name, label) => {
    expect(toDnsLabel(name)).toBe(label);
  });
});

describe('toCpu', () => {
  it.each([
    ['0.5', '500m'],
    ['2', '2000m'],
    ['250m', '250m'],
    ['.25', '250m'],
  ])('converts %s to %s', (text, value) => {
    expect(toCpu(text)).toEqual({ value });
  });

  it('refuses a text that is no number of cores', () => {
    expect(toCpu('half')).toEqual({ problem: 'expected a number of cores, got "half"' });
  });
});
