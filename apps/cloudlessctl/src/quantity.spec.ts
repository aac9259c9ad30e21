import { parseCpu, parseDuration, parseQuantity, quoteText } from './quantity.js';

describe('parseDuration', () => {
  it.each([
    ['0s', 0n],
    ['1ns', 1n],
    ['2us', 2_000n],
    ['500ms', 500_000_000n],
    ['1.5s', 1_500_000_000n],
    ['10m', 600_000_000_000n],
    ['1h30m', 5_400_000_000_000n],
    ['1d', 86_400_000_000_000n],
    ['-2s', -2_000_000_000n],
    ['315576000000s', 315_576_000_000n * 1_000_000_000n],
  ])('parses %s as %i nanoseconds', (text, value) => {
    expect(parseDuration(text)).toEqual({ value });
  });

  it.each([
    ['soon', 'expected a duration such as "500ms", "2s" or "1h30m", got "soon"'],
    ['5', 'expected a duration such as "500ms", "2s" or "1h30m", got "5"; write "5s" for seconds'],
    ['1m1h', 'expected a duration such as "500ms", "2s" or "1h30m", got "1m1h"'],
    ['1s1s', 'expected a duration such as "500ms", "2s" or "1h30m", got "1s1s"'],
    ['0.5ns', '"0.5ns" is finer than a nanosecond'],
    ['315576000001s', '"315576000001s" is longer than 315576000000s'],
    [
      `${'1'.repeat(64)}s`,
      `expected a duration such as "500ms", "2s" or "1h30m", got "${'1'.repeat(60)}…"`,
    ],
  ])('rejects %s with the problem: %s', (text, problem) => {
    expect(parseDuration(text)).toEqual({ problem });
  });
});

describe('parseQuantity', () => {
  it.each([
    ['0', 0n],
    ['1024', 1_024n],
    ['1k', 1_000n],
    ['1K', 1_000n],
    ['500M', 500_000_000n],
    ['1.5G', 1_500_000_000n],
    ['1T', 10n ** 12n],
    ['1P', 10n ** 15n],
    ['1Ki', 1n << 10n],
    ['64Mi', 64n << 20n],
    ['1.5Gi', 3n << 29n],
    ['1Ti', 1n << 40n],
    ['1Pi', 1n << 50n],
    ['-1Ki', -1_024n],
  ])('parses %s as %i', (text, value) => {
    expect(parseQuantity(text)).toEqual({ value });
  });

  it.each([
    ['64MB', 'expected a quantity such as 67108864, "64Mi" or "500M", got "64MB"'],
    ['1.5', '"1.5" is not a whole number of units'],
  ])('rejects %s with the problem: %s', (text, problem) => {
    expect(parseQuantity(text)).toEqual({ problem });
  });
});

describe('parseCpu', () => {
  it.each([
    ['500m', 500n],
    ['0.5', 500n],
    ['2', 2_000n],
    ['2.0', 2_000n],
  ])('parses %s as %i thousandths of a core', (text, value) => {
    expect(parseCpu(text)).toEqual({ value });
  });

  it.each([
    ['many', 'expected a CPU quantity such as "500m" or "0.5", got "many"'],
    ['-1', 'expected a CPU quantity such as "500m" or "0.5", got "-1"'],
    ['0.0005', '"0.0005" is finer than a thousandth of a core'],
    ['0.5m', '"0.5m" is finer than a thousandth of a core'],
  ])('rejects %s with the problem: %s', (text, problem) => {
    expect(parseCpu(text)).toEqual({ problem });
  });
});

describe('quoteText', () => {
  it('quotes a text, and truncates a text of more than 60 characters', () => {
    expect(quoteText('x'.repeat(60))).toBe(`"${'x'.repeat(60)}"`);
    expect(quoteText('x'.repeat(61))).toBe(`"${'x'.repeat(60)}…"`);
  });
});
