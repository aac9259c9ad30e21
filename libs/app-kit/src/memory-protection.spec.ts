import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { endMemoryProtection, protectFromOutOfMemory } from './memory-protection.js';

let home: string;
let file: string;
beforeEach(() => {
  home = mkdtempSync(path.join(tmpdir(), 'cloudless-oom-'));
  file = path.join(home, 'oom_score_adj');
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

describe('protectFromOutOfMemory', () => {
  it.each([
    { before: '0', after: '-900', name: 'lowers a score of 0 to -900' },
    { before: '900', after: '-900', name: 'lowers a score of 900 to -900' },
    { before: '-999', after: '-999', name: 'does not change a lower score' },
  ])('$name', ({ before, after }) => {
    writeFileSync(file, `${before}\n`);
    expect(protectFromOutOfMemory(file)).toBe(true);
    expect(readFileSync(file, 'utf8').split('\n')[0]).toBe(after);
  });

  it('returns false on a system without scores', () => {
    expect(protectFromOutOfMemory(path.join(home, 'missing'))).toBe(false);
  });

  it('returns false when the score cannot be read', () => {
    expect(protectFromOutOfMemory(home)).toBe(false); // a directory
  });
});

describe('endMemoryProtection', () => {
  it('does nothing on a system without scores', () => {
    expect(() => endMemoryProtection(path.join(home, 'missing'))).not.toThrow();
  });

  it.each([
    { before: '-900', after: '0' },
    { before: '0', after: '0' },
    { before: '300', after: '300' },
  ])('sets the score from $before to $after', ({ before, after }) => {
    writeFileSync(file, `${before}\n`);
    endMemoryProtection(file);
    expect(readFileSync(file, 'utf8').split('\n')[0]).toBe(after);
  });
});
