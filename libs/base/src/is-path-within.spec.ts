import { isPathWithin } from './is-path-within.js';

describe('isPathWithin', () => {
  it.each([
    { path: '/srv', directory: '/srv', expected: true },
    { path: '/srv/data/x', directory: '/srv', expected: true },
    { path: '/srv2', directory: '/srv', expected: false },
    { path: '/srv', directory: '/srv/data', expected: false },
    { path: '/srv', directory: '/', expected: true },
    { path: '/', directory: '/', expected: true },
  ])('returns $expected for $path in $directory', ({ path, directory, expected }) => {
    expect(isPathWithin(path, directory)).toBe(expected);
  });
});
