import fc from 'fast-check';
import pc from 'picocolors';
import { layOutColumns } from './table-columns.js';
import { GrowingTable, formatTable } from './table.js';
import type { Column } from './table.js';
import { getTextWidth, shortenText, wrapText } from './text-width.js';

const COLUMNS: readonly Column[] = [
  { header: 'NAME' },
  { header: 'ZONE', dropOrder: 2 },
  { header: 'AGE', dropOrder: 1 },
  { header: 'REASON', fit: 'wrap', minWidth: 12 },
];
const LONG_REASON = 'no node fits: needs 500m CPU, 100m free on the largest node';
const formatAt = (tableWidth?: number): string =>
  formatTable(COLUMNS, [['web', 'zone-a', '10s', LONG_REASON]], { tableWidth });

describe('formatTable', () => {
  it('is as wide as its cells without a terminal', () => {
    expect(formatAt()).toBe(`NAME   ZONE     AGE   REASON\nweb    zone-a   10s   ${LONG_REASON}\n`);
  });

  it('narrows the gaps and wraps the reason within its column on a narrow terminal', () => {
    expect(formatAt(50)).toBe(
      [
        'NAME  ZONE    AGE  REASON',
        'web   zone-a  10s  no node fits: needs 500m CPU,',
        '                   100m free on the largest node',
        '',
      ].join('\n'),
    );
  });

  it('leaves columns out in their order when the narrowest reason does not fit, never the reason', () => {
    expect(formatAt(30).split('\n')[0]).toBe('NAME  ZONE    REASON');
    expect(formatAt(24).split('\n')[0]).toBe('NAME  REASON');
    expect(formatAt(24).replaceAll(/\s+/g, ' ')).toContain('no node fits: needs 500m');
  });

  it('keeps every column with wide', () => {
    const text = formatTable(
      COLUMNS,
      [['web', 'zone-a', '10s', LONG_REASON]],
      { tableWidth: 24 },
      { wide: true },
    );
    expect(text.split('\n')[0]).toMatch(/NAME +ZONE +AGE +REASON/);
  });

  it('aligns wide characters, combining marks and coloured cells by their width on the terminal', () => {
    const { red } = pc.createColors(true);
    const text = formatTable(
      ['NAME', 'STATE'],
      [
        ['日本', 'up'],
        ['cafe\u0301', 'up'],
        [{ text: 'gone', paint: red }, 'down'],
      ],
    );
    const starts = text
      .split('\n')
      .map((line) => getTextWidth(line.replace(/(STATE|up|down)$/, '')));
    expect(starts.slice(0, 4)).toEqual([7, 7, 7, 7]);
    expect(text).toContain(red('gone'));
  });

  it('colours each line of a wrapped cell by itself', () => {
    const { red } = pc.createColors(true);
    const text = formatTable(
      ['NAME', { header: 'REASON', fit: 'wrap', minWidth: 6 }],
      [['web', { text: 'one two', paint: red }]],
      { tableWidth: 12 },
    );
    expect(text).toContain(red('one'));
    expect(text).toContain(red('two'));
  });

  it('never writes a line that is wider than a terminal of at least 60 columns, and keeps every word of a reason', () => {
    const word = fc.string({ minLength: 1, maxLength: 70, unit: fc.constantFrom('a', '日', 'é') });
    const reason = fc.array(word, { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(
        fc.array(reason, { minLength: 1 }),
        fc.integer({ min: 60, max: 200 }),
        (reasons, tableWidth) => {
          const rows = reasons.map((words) => ['web', 'zone-a', '10s', words.join(' ')]);
          const text = formatTable(COLUMNS, rows, { tableWidth });
          for (const line of text.split('\n'))
            expect(getTextWidth(line)).toBeLessThanOrEqual(tableWidth);
          const letters = (value: string): number =>
            [...value].filter((c) => 'a日é'.includes(c)).length;
          const others = rows.length * letters('zone-a');
          expect(letters(text) - (text.includes('ZONE') ? others : 0)).toBe(
            letters(reasons.flat().join('')),
          );
        },
      ),
    );
  });
});

describe('layOutColumns', () => {
  it('gives spare cells to the columns that need them, up to their widest cell', () => {
    const columns: readonly Column[] = [
      { header: 'A', fit: 'wrap', minWidth: 5 },
      { header: 'B', fit: 'wrap', minWidth: 5 },
    ];
    expect(layOutColumns(columns, [8, 100], 42)).toEqual({
      shown: [0, 1],
      widths: [8, 32],
      gap: 2,
    });
  });
});

describe('GrowingTable', () => {
  it('prints rows below one header while they fit, and the header again when a column becomes wider', () => {
    const table = new GrowingTable([{ header: 'NAME', usualWidth: 8 }, 'STATE']);
    const first = table.addAll([
      ['web', 'up'],
      ['database', 'up'],
    ]);
    expect(first + table.add(['api', 'down']) + table.add(['longer-name', 'up'])).toBe(
      [
        'NAME       STATE',
        'web        up',
        'database   up',
        'api        down',
        'NAME          STATE',
        'longer-name   up',
        '',
      ].join('\n'),
    );
  });
});

describe('wrapText', () => {
  it('breaks at spaces, and within a word only when the word is longer than a line', () => {
    expect(wrapText('the quick brown fox', 9)).toEqual(['the quick', 'brown fox']);
    expect(wrapText('a abcdefgh b', 4)).toEqual(['a', 'abcd', 'efgh', 'b']);
    expect(wrapText('日本語', 4)).toEqual(['日本', '語']);
    expect(wrapText('', 4)).toEqual(['']);
  });
});

describe('shortenText', () => {
  it('replaces the end of a text that is too long', () => {
    expect([shortenText('abcd', 4), shortenText('abcde', 4), shortenText('日本語', 4)]).toEqual([
      'abcd',
      'abc…',
      '日…',
    ]);
  });
});
