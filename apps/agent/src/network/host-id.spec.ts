import { readHostId, toHostId } from './host-id.js';

describe('toHostId', () => {
  it('differs between machines and between network namespaces of one machine', () => {
    const ids = [
      toHostId('boot-1', 'net:[1]'),
      toHostId('boot-1', 'net:[2]'),
      toHostId('boot-2', 'net:[1]'),
    ];
    expect(new Set(ids).size).toBe(3);
  });

  it('is equal for two calls in one network namespace', () => {
    expect(readHostId()).toBe(readHostId());
    expect(readHostId()).toMatch(/^[0-9a-f]{32}$/);
  });
});
