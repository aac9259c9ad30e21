import { definedFields } from '@cloudless/base';

/** A table cell: its text, and a function that colours the text after its width is known. */
export interface Cell {
  readonly text: string;
  readonly paint?: (text: string) => string;
}

/**
 * Formats a table with aligned columns and without borders, like `kubectl`. The last column is not
 * padded. Returns an empty text without rows. An empty cell is shown as `-`.
 */
export function formatTable(
  headers: readonly string[],
  rows: readonly (readonly (Cell | string)[])[],
): string {
  if (rows.length === 0) return '';
  const cells = [headers, ...rows].map((row) => row.map((cell) => toCell(cell)));
  const widths = headers.map((_, column) =>
    Math.max(...cells.map((row) => getWidth(row[column]?.text ?? ''))),
  );
  return cells.map((row) => `${formatRow(row, widths)}\n`).join('');
}

/**
 * A table whose rows are added one after another. Columns are as wide as their widest cell so far.
 */
export class GrowingTable {
  private readonly widths: number[];
  private hasHeader = false;

  constructor(private readonly headers: readonly string[]) {
    this.widths = headers.map(getWidth);
  }

  /**
   * Returns the line of a row, for the first row with the header before it. An empty or missing
   * cell is shown as `-`.
   */
  add(row: readonly (Cell | string)[]): string {
    const cells = this.headers.map((_, column) => toCell(row[column] ?? ''));
    for (const [column, { text }] of cells.entries())
      this.widths[column] = Math.max(this.widths[column] ?? 0, getWidth(text));
    const lines = this.hasHeader ? [cells] : [this.headers.map(toCell), cells];
    this.hasHeader = true;
    return lines.map((line) => `${formatRow(line, this.widths)}\n`).join('');
  }
}

function formatRow(row: readonly Cell[], widths: readonly number[]): string {
  return row
    .map(({ text, paint }, column) => {
      const gap =
        column === row.length - 1
          ? ''
          : ' '.repeat((widths[column] ?? 0) - getWidth(text) + COLUMN_GAP);
      return (paint === undefined ? text : paint(text)) + gap;
    })
    .join('')
    .trimEnd();
}

/** Spaces between columns, as in the tables of kubectl. */
const COLUMN_GAP = 3;

function toCell(cell: Cell | string): Cell {
  const { text, paint } = typeof cell === 'string' ? { text: cell, paint: undefined } : cell;
  const line = toOneLine(text);
  return { text: line === '' ? '-' : line, ...definedFields({ paint }) };
}

/**
 * Replaces line ends and other control characters, which would break a table or control the
 * terminal.
 */
export function toOneLine(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ').trim();
}

/** Counts characters instead of UTF-16 units. */
function getWidth(text: string): number {
  return [...text].length;
}
