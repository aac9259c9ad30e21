import fc from 'fast-check';
import { LAST_LINES, toLastLines } from './last-lines.js';

describe('the last lines of a replica', () => {
  it.each([
    {
      name: 'plain text stays, with its tabs',
      line: 'Error: no port\tat 3',
      is: 'Error: no port\tat 3',
    },
    {
      name: 'text of any language stays',
      line: 'größer als ß 漢字 🙂',
      is: 'größer als ß 漢字 🙂',
    },
    { name: 'colours go', line: '\u001b[1;31merror\u001b[0m: gone', is: 'error: gone' },
    {
      name: 'a title or a cursor movement steers nothing',
      line: '\u001b]0;owned\u0007x\u001b[2Jy',
      is: '␛]0;owned␇xy',
    },
    { name: 'what a Windows line end leaves goes', line: 'done\r', is: 'done' },
    { name: 'no line becomes two', line: 'a\nb\u2028c\rd', is: 'a␊b\ufffdc␍d' },
    { name: 'C1 codes and delete are shown', line: 'a\u009b31mb\u007f', is: 'a\ufffd31mb␡' },
    { name: 'the direction of text is not turned', line: 'a\u202eb\u2066c', is: 'a\ufffdb\ufffdc' },
    { name: 'an empty one stays', line: '', is: '' },
  ])('$name', ({ line, is }) => {
    expect(toLastLines([line])).toEqual([is]);
  });

  it('are the newest', () => {
    const lines = Array.from({ length: 12 }, (_, index) => `line ${index}`);
    expect(toLastLines(lines)).toEqual(lines.slice(2));
  });

  it('are cut where they are too long, between characters, and say so', () => {
    expect(toLastLines(['🙂'.repeat(256), '🙂'.repeat(257)])).toEqual([
      '🙂'.repeat(256),
      `${'🙂'.repeat(255)}…`,
    ]);
    expect(toLastLines([`${'\u001b[0m'.repeat(10_000)}x`])).toEqual(['…']); // hidden too far behind
  });

  it('hold no half of a character', () => {
    expect(toLastLines(['a\ud83d', 'b'.repeat(2_047) + '🙂'])).toEqual([
      'a\ufffd',
      `${'b'.repeat(255)}…`,
    ]);
  });

  it('are bounded and harmless whatever was written, and stay as they are', () => {
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
