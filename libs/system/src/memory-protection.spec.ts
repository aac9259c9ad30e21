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

describe('what the kernel ends when memory runs out', () => {
  it.each([
    { before: '0', after: '-900', name: 'is not this program, when it may say so' },
    { before: '900', after: '-900', name: 'is not this program, whatever it was before' },
    { before: '-999', after: '-999', name: 'stays as it was where somebody protected it better' },
  ])('$name', ({ before, after }) => {
    writeFileSync(file, `${before}\n`);
    expect(protectFromOutOfMemory(file)).toBe(true);
    expect(readFileSync(file, 'utf8').split('\n')[0]).toBe(after);
  });

  it('stays as it is on a system without it', () => {
    expect(protectFromOutOfMemory(path.join(home, 'missing'))).toBe(false);
    expect(() => endMemoryProtection(path.join(home, 'missing'))).not.toThrow();
  });

  it.each([
    { before: '-900', after: '0' },
    { before: '0', after: '0' },
    { before: '300', after: '300' },
  ])('is what a protected program starts for others: from $before to $after', ({ before, after }) => {
    writeFileSync(file, `${before}\n`);
    endMemoryProtection(file);
    expect(readFileSync(file, 'utf8').split('\n')[0]).toBe(after);
  });

  it('is as before where this program may not lower it, without an error', () => {
    expect(protectFromOutOfMemory(home)).toBe(false); // no file that can be read
  });
});
