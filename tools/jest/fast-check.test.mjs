import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import plain from '../../node_modules/fast-check/lib/fast-check.js';
import fc, { withEnvironment } from './fast-check.mjs';

const runsAt = (scale, numRuns) =>
  withEnvironment(numRuns === undefined ? {} : { numRuns }, { CLOUDLESS_PROPERTY_SCALE: scale })
    .numRuns;

describe('the number of runs of a property', () => {
  for (const { scale, numRuns, runs } of [
    { scale: undefined, numRuns: 500, runs: 500 },
    { scale: undefined, numRuns: undefined, runs: 100 },
    { scale: '0.1', numRuns: 500, runs: 50 },
    { scale: '10', numRuns: 25, runs: 250 },
    { scale: '0.001', numRuns: 500, runs: 5 },
    { scale: '0.001', numRuns: 2, runs: 2 },
  ])
    it(`is ${runs} for ${numRuns ?? 'the default'} at scale ${scale ?? '1 by default'}`, () =>
      assert.equal(runsAt(scale, numRuns), runs));

  for (const scale of ['', '0', '-1', 'many', 'Infinity'])
    it(`is refused at scale "${scale}"`, () =>
      assert.throws(
        () => runsAt(scale, 500),
        new TypeError(`CLOUDLESS_PROPERTY_SCALE is "${scale}"; expected a positive number`),
      ));
});

describe('the seed of a property', () => {
  const seedOf = (text, parameters) =>
    withEnvironment(parameters, { CLOUDLESS_PROPERTY_SEED: text }).seed;

  it('is 1 by default', () => assert.equal(seedOf(undefined), 1));
  it('is the seed of the environment', () => assert.equal(seedOf('-42'), -42));
  it('is the seed of the property where the property names one', () =>
    assert.equal(seedOf('7', { seed: 3 }), 3));
  it('is left to fast-check with "random"', () => assert.equal(seedOf('random'), undefined));
  it('is refused with text', () =>
    assert.throws(() => seedOf('today'), /CLOUDLESS_PROPERTY_SEED is "today"; expected a whole/));

  it('makes two runs draw the same values', () => {
    const draw = () => {
      const values = [];
      fc.assert(fc.property(fc.integer(), (value) => void values.push(value)));
      return values;
    };
    assert.deepEqual(draw(), draw());
  });
});

describe('strings of any characters', () => {
  for (const constraints of [{}, { maxLength: 200 }, { minLength: 1, maxLength: 6 }])
    it(`are those of fast-check with ${JSON.stringify(constraints)}`, () => {
      const draw = ({ string }) =>
        plain.sample(string({ unit: 'binary', ...constraints }), { seed: 1, numRuns: 300 });
      assert.deepEqual(draw(fc), draw(plain));
    });

  it('shrink as those of fast-check', () => {
    const shrink = ({ string }) =>
      plain.check(
        plain.property(
          string({ unit: 'binary' }),
          (text) => !/[\u{10000}-\u{10ffff}]./u.test(text),
        ),
        { seed: 5 },
      );
    const { counterexample, counterexamplePath, failed } = shrink(fc);
    assert.equal(failed, true);
    const expected = shrink(plain);
    assert.deepEqual(counterexample, expected.counterexample);
    assert.equal(counterexamplePath, expected.counterexamplePath);
  });
});
