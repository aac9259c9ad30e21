import { findKind, parseKind } from './kinds.js';

describe('parseKind', () => {
  it.each(['constructor', 'toString', '__proto__'])('refuses %s', (word) => {
    expect(findKind(word)).toBeUndefined();
    expect(() => parseKind(word)).toThrow(`unknown kind "${word}": expected workloads`);
  });

  it('names the kind that takes the place of a kind of another system', () => {
    expect(() => parseKind('Pods')).toThrow('; here: replicas');
  });
});
