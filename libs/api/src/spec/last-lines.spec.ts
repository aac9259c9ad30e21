import fc from 'fast-check';
import { LAST_LINES, toLastLines } from './last-lines.js';

describe('toLastLines', () => {
  it.each([
    {
      name: 'keeps plain text and tabs',
      line: 'Error: no port\tat 3',
      expected: 'Error: no port\tat 3',
    },
    {
      name: 'keeps text of any language',
      line: 'größer als ß 漢字 🙂',
      expected: 'größer als ß 漢字 🙂',
    },
    {
      name: 'removes colour sequences',
      line: '\u001b[1;31merror\u001b[0m: gone',
      expected: 'error: gone',
    },
    {
      name: 'makes a title sequence visible, and removes a cursor movement',
      line: '\u001b]0;owned\u0007x\u001b[2Jy',
      expected: '␛]0;owned␇xy',
    },
    { name: 'removes the carriage return of a Windows line end', line: 'done\r', expected: 'done' },
    {
      name: 'replaces line breaks within a line',
      line: 'a\nb\u2028c\rd',
      expected: 'a␊b\ufffdc␍d',
    },
    { name: 'replaces C1 codes and delete', line: 'a\u009b31mb\u007f', expected: 'a\ufffd31mb␡' },
    {
      name: 'replaces characters that change the text direction',
      line: 'a\u202eb\u2066c',
      expected: 'a\ufffdb\ufffdc',
    },
    { name: 'keeps an empty line', line: '', expected: '' },
  ])('$name', ({ line, expected }) => {
    expect(toLastLines([line])).toEqual([expected]);
  });

  it('keeps the newest 10 of 12 lines', () => {
    const lines = Array.from({ length: 12 }, (_, index) => `line ${index}`);
    expect(toLastLines(lines)).toEqual(lines.slice(2));
  });

  it('truncates lines of more than 256 characters and marks them with an ellipsis', () => {
    expect(toLastLines(['🙂'.repeat(256), '🙂'.repeat(257)])).toEqual([
      '🙂'.repeat(256),
      `${'🙂'.repeat(255)}…`,
    ]);
    expect(toLastLines([`${'\u001b[0m'.repeat(10_000)}x`])).toEqual(['…']); // The text is beyond the examined part.
  });

  it('replaces a lone surrogate, also one that truncation would leave', () => {
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
