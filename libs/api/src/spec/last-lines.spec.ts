import fc from 'fast-check';
import { LAST_LINES, toLastLines } from './last-lines.js';

describe('toLastLines', () => {
  it.each([
    {
      name: 'keeps plain text and tabs',
      line: 'Error: no port\tat 3',
      is: 'Error: no port\tat 3',
    },
    {
      name: 'keeps text of any language',
      line: 'größer als ß 漢字 🙂',
      is: 'größer als ß 漢字 🙂',
    },
    { name: 'removes colours', line: '\u001b[1;31merror\u001b[0m: gone', is: 'error: gone' },
    {
      name: 'disables titles and cursor movements',
      line: '\u001b]0;owned\u0007x\u001b[2Jy',
      is: '␛]0;owned␇xy',
    },
    { name: 'removes the carriage return of a Windows line end', line: 'done\r', is: 'done' },
    { name: 'replaces line separators', line: 'a\nb\u2028c\rd', is: 'a␊b\ufffdc␍d' },
    { name: 'replaces C1 codes and delete', line: 'a\u009b31mb\u007f', is: 'a\ufffd31mb␡' },
    {
      name: 'replaces characters that change the text direction',
      line: 'a\u202eb\u2066c',
      is: 'a\ufffdb\ufffdc',
    },
    { name: 'keeps an empty line', line: '', is: '' },
  ])('$name', ({ line, is }) => {
    expect(toLastLines([line])).toEqual([is]);
  });

  it('keeps the newest lines', () => {
    const lines = Array.from({ length: 12 }, (_, index) => `line ${index}`);
    expect(toLastLines(lines)).toEqual(lines.slice(2));
  });

  it('truncates long lines between characters and marks them', () => {
    expect(toLastLines(['🙂'.repeat(256), '🙂'.repeat(257)])).toEqual([
      '🙂'.repeat(256),
      `${'🙂'.repeat(255)}…`,
    ]);
    expect(toLastLines([`${'\u001b[0m'.repeat(10_000)}x`])).toEqual(['…']); // hidden too far behind
  });

  it('splits no surrogate pair', () => {
    expect(toLastLines(['a\ud83d', 'b'.repeat(2_047) + '🙂'])).toEqual([
      'a\ufffd',
      `${'b'.repeat(255)}…`,
    ]);
  });

  it('returns bounded lines without control characters for any input, and is idempotent', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: 'binary', maxLength: 400 }), { maxLength: 12 }),
        (lines) => {
          const once = toLastLines(lines);
          expect(once.length).toBeLessThanOrEqual(LAST_LINES.count);
          for (const line of once) {
            expect([...line].length).toBeLessThanOrEqual(LAST_LINES.characters);
            expect(line).not.toMatch(/[^\P{Cc}\t]|\p{Cs}/u);
          }
          expect(toLastLines(once)).toEqual(once);
        },
      ),
    );
  });
});
