import { findExceeded, parseLimits } from './limits.js';

describe('parseLimits', () => {
  it('reads each figure with its limit', () => {
    expect(parseLimits('commits=0.2,orders=1')).toEqual([
      { figure: 'commits', max: 0.2 },
      { figure: 'orders', max: 1 },
    ]);
    expect(parseLimits('')).toEqual([]);
  });

  it('names a part that is no limit', () => {
    expect(() => parseLimits('commits=0.2,orders')).toThrow('"orders" is not figure=number');
  });
});

describe('findExceeded', () => {
  it('names figures above their limit and figures that do not exist', () => {
    const limits = parseLimits('commits=0.2,orders=1,wishes=1');
    expect(findExceeded({ commits: 0.3, orders: 1 }, limits)).toEqual([
      '0.3 commits for each replica, at most 0.2 are allowed',
      'there is no figure wishes',
    ]);
  });
});
