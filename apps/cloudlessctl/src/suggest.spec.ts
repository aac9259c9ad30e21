import { findSimilar, suggestSimilar } from './suggest.js';

describe('findSimilar', () => {
  it.each([
    { word: 'nods', candidates: ['workload', 'node'], found: 'node' },
    { word: 'REPLICAS', candidates: ['replicas'], found: 'replicas' },
    { word: 'max_surg', candidates: ['maxSurge'], found: 'maxSurge' },
    { word: 'ndoe', candidates: ['node'], found: 'node' },
    { word: 'ab', candidates: ['ac'], found: 'ac' },
    { word: 'ab', candidates: ['cd'], found: undefined },
    { word: 'abcde', candidates: ['abxyz'], found: undefined },
    { word: 'abcde', candidates: ['abcyz'], found: 'abcyz' },
    { word: 'image', candidates: [], found: undefined },
    { word: 'imag', candidates: ['images', 'image'], found: 'image' },
  ])('returns $found for $word among $candidates', ({ word, candidates, found }) => {
    expect(findSimilar(word, candidates)).toBe(found);
  });
});

describe('suggestSimilar', () => {
  it('returns a question for a similar candidate, and an empty text without one', () => {
    expect(suggestSimilar('nods', ['node'])).toBe('; did you mean node?');
    expect(suggestSimilar('zzzzzz', ['node'])).toBe('');
  });
});
