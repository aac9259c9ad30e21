import { definedFields } from '@cloudless/base';
import { layOutColumns } from './table-columns.js';
import type { Column, ColumnLayout } from './table-columns.js';
import { getTextWidth, padText, shortenText, wrapText } from './text-width.js';

export type { Column } from './table-columns.js';

/** A table cell: its text, and a function that colours the text after its width is known. */
export interface Cell {
  readonly text: string;
  readonly paint?: (text: string) => string;
}

/** A row of a table. A missing cell counts as empty. */
export type Row = readonly (Cell | string)[];

/** The space for a table. */
export interface TableSpace {
  /** Width of the terminal in character cells. Absent: no limit, nothing is cut or left out. */
  readonly tableWidth?: number | undefined;
  /** True: the table has no header. Default: false. */
  readonly hidesHeaders?: boolean;
}

/** Options of {@link formatTable}. */
export interface TableOptions {
  /** True with `-o wide`: no column is left out. Default: false. */
  readonly wide?: boolean;
}

/**
 * Formats a table with aligned columns and without borders, like `kubectl`, that fits into the
 * terminal, see {@link layOutColumns}. Returns an empty text without rows. An empty cell is shown as
 * `-`.
 * @param columns - A text is a column that is always shown in full.
 * @param space - Width of the terminal; without it the table is as wide as its cells.
 */
export function formatTable(
  columns: readonly (Column | string)[],
  rows: readonly Row[],
  space: TableSpace = {},
  { wide = false }: TableOptions = {},
): string {
  if (rows.length === 0) return '';
  const all = columns.map(toColumn);
  const header = all.map((column) => toCell(column.header));
  const lines = rows.map((row) => all.map((_, index) => toCell(row[index] ?? '')));
  const shown = space.hidesHeaders === true ? lines : [header, ...lines];
  const layout = layOutColumns(all, measureColumns(all, shown), space.tableWidth, wide);
  return shown.map((cells) => formatRow(all, cells, layout)).join('');
}

/**
 * A table whose rows are added one after another, for a watch. The columns keep their widths: when
 * a later cell is too wide, the header is printed again with wider columns.
 */
export class GrowingTable {
  private readonly columns: readonly Column[];
  private naturalWidths: readonly number[];
  /** Where the columns of the last printed header begin; empty before the first header. */
  private positions = '';

  constructor(
    columns: readonly (Column | string)[],
    private readonly space: TableSpace = {},
    private readonly options: TableOptions = {},
  ) {
    this.columns = columns.map(toColumn);
    this.naturalWidths = this.columns.map(({ header, usualWidth = 0 }) =>
      Math.max(getTextWidth(header), usualWidth),
    );
  }

  /** Returns the lines of a row, see {@link addAll}. */
  add(row: Row): string {
    return this.addAll([row]);
  }

  /**
   * Returns the lines of rows. The header comes before the first rows, and again whenever a column
   * becomes wider. An empty or missing cell is shown as `-`.
   */
  addAll(rows: readonly Row[]): string {
    if (rows.length === 0) return '';
    const lines = rows.map((row) => this.columns.map((_, index) => toCell(row[index] ?? '')));
    this.naturalWidths = measureColumns(this.columns, lines).map((width, index) =>
      Math.max(width, this.naturalWidths[index] ?? 0),
    );
    const { columns, space, options } = this;
    const layout = layOutColumns(columns, this.naturalWidths, space.tableWidth, options.wide);
    const positions = getPositions(layout);
    const shown =
      positions === this.positions || space.hidesHeaders === true ? lines : [this.header, ...lines];
    this.positions = positions;
    return shown.map((cells) => formatRow(columns, cells, layout)).join('');
  }

  private get header(): readonly Cell[] {
    return this.columns.map((column) => toCell(column.header));
  }
}

/** Describes where columns begin. The width of the last column does not matter. */
function getPositions({ shown, widths, gap }: ColumnLayout): string {
  return shown
    .map((index, position) => [
      index,
      position === shown.length - 1 ? 0 : (widths[index] ?? 0) + gap,
    ])
    .join();
}

function toColumn(column: Column | string): Column {
  return typeof column === 'string' ? { header: column } : column;
}

/** Returns the width of the widest cell of each column. */
function measureColumns(
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
): readonly number[] {
  return columns.map((_, index) =>
    rows.reduce((widest, row) => Math.max(widest, getTextWidth(row[index]?.text ?? '')), 0),
  );
}

/** Formats a row; a wrapped cell continues on further lines. */
function formatRow(
  columns: readonly Column[],
  row: readonly Cell[],
  { shown, widths, gap }: ColumnLayout,
): string {
  const cells = shown.map((index) => {
    const width = widths[index] ?? 0;
    const { text, paint } = row[index] ?? { text: '' };
    return { lines: fitText(text, width, columns[index]?.fit), width, paint };
  });
  const height = Math.max(...cells.map(({ lines }) => lines.length));
  return Array.from({ length: height }, (_, line) => {
    const texts = cells.map(({ lines, width, paint = (text) => text }, position) => {
      const text = lines[line] ?? '';
      const spaces = padText(text, position === cells.length - 1 ? 0 : width + gap);
      return (text === '' ? '' : paint(text)) + spaces.slice(text.length);
    });
    return `${texts.join('').trimEnd()}\n`;
  }).join('');
}

function fitText(text: string, width: number, fit: Column['fit']): readonly string[] {
  if (fit === undefined || getTextWidth(text) <= width) return [text];
  return fit === 'wrap' ? wrapText(text, width) : [shortenText(text, width)];
}

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
