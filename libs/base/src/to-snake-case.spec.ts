import { toSnakeCase } from './index.js';

describe('toSnakeCase', () => {
  it.each([
    ['hostPaths', 'host_paths'],
    ['maxCpuMillis', 'max_cpu_millis'],
    ['name', 'name'],
    ['already_snake', 'already_snake'],
    ['', ''],
  ])('converts "%s" to "%s"', (name, expected) => expect(toSnakeCase(name)).toBe(expected));
});
