/** A column of a table. */
export interface Column {
  readonly header: string;
  /**
   * On a narrow terminal, columns with a number are left out, the lowest number first. Absent: the
   * column is always shown.
   */
  readonly dropOrder?: number;
  /**
   * How a cell fits into less than its width: `wrap` continues the text on further lines of the
   * column, `shorten` replaces the end with `…`. Absent: the column is never narrower than its
   * cells.
   */
  readonly fit?: 'wrap' | 'shorten';
  /**
   * Smallest width of a column with `fit`, in character cells. Default: 28 to wrap, 12 to shorten.
   */
  readonly minWidth?: number;
  /** Width that a watch reserves for later cells, in character cells. Default: that of the header. */
  readonly usualWidth?: number;
}

/** The columns that are shown, and their widths. */
export interface ColumnLayout {
  /** Indexes of the shown columns. */
  readonly shown: readonly number[];
  /** Width of each column by index, in character cells. */
  readonly widths: readonly number[];
  /** Spaces between two columns. */
  readonly gap: number;
}

/** Spaces between columns, as in the tables of kubectl. */
const COLUMN_GAP = 3;
/** Spaces between columns when the table does not fit otherwise. */
const NARROW_GAP = 2;
const DEFAULT_MIN_WIDTHS = { wrap: 28, shorten: 12 } as const;
/** Smallest width of a wrapped column on a terminal that is too narrow for every other means. */
const LEAST_WRAP_WIDTH = 12;

/**
 * Fits columns into the width of a terminal: first smaller gaps and narrower columns with `fit`,
 * then without the columns that may be left out, at last with wrapped columns of 12 cells. A table
 * that is still too wide stays so.
 * @param naturalWidths - Width of the widest cell of each column.
 * @param width - Width of the terminal in character cells; undefined: no limit.
 * @param keepAll - True keeps every column and shortens no cell; cells may still wrap.
 */
export function layOutColumns(
  columns: readonly Column[],
  naturalWidths: readonly number[],
  width: number | undefined,
  keepAll = false,
): ColumnLayout {
  const all = columns.map((_, index) => index);
  const natural: ColumnLayout = { shown: all, widths: naturalWidths, gap: COLUMN_GAP };
  if (width === undefined || getTotal(all, naturalWidths, COLUMN_GAP) <= width) return natural;
  const shown = [...all];
  const gap = NARROW_GAP;
  let minWidths = naturalWidths.map((natural, index) =>
    Math.min(natural, getMinWidth(columns[index], keepAll)),
  );
  while (!keepAll && getTotal(shown, minWidths, gap) > width) {
    const dropped = findDropped(columns, shown);
    if (dropped === undefined) break;
    shown.splice(shown.indexOf(dropped), 1);
  }
  if (getTotal(shown, minWidths, gap) > width) {
    minWidths = minWidths.map((minimum, index) =>
      columns[index]?.fit === 'wrap' ? Math.min(minimum, LEAST_WRAP_WIDTH) : minimum,
    );
    // Columns that are too wide anyway are broken by the terminal: then every cell is whole.
    if (getTotal(shown, minWidths, gap) > width && keepAll) return natural;
  }
  const spare = width - getTotal(shown, minWidths, gap);
  return { shown, widths: growColumns(shown, minWidths, naturalWidths, spare), gap };
}

/** Gives the spare cells to the columns that need them, evenly, up to their natural widths. */
function growColumns(
  shown: readonly number[],
  minWidths: readonly number[],
  naturalWidths: readonly number[],
  spare: number,
): readonly number[] {
  const widths = [...minWidths];
  for (let left = spare; left > 0;) {
    const needy = shown.filter((index) => (widths[index] ?? 0) < (naturalWidths[index] ?? 0));
    if (needy.length === 0) break;
    const share = Math.max(1, Math.floor(left / needy.length));
    for (const index of needy) {
      const missing = (naturalWidths[index] ?? 0) - (widths[index] ?? 0);
      const given = Math.min(share, missing, left);
      widths[index] = (widths[index] ?? 0) + given;
      left -= given;
    }
  }
  return widths;
}

/** Returns the smallest width of a column; with `keepsText`, only wrapped columns may be narrower. */
function getMinWidth(column: Column | undefined, keepsText: boolean): number {
  if (column?.fit === undefined || (keepsText && column.fit === 'shorten')) return Infinity;
  return Math.max(column.header.length, column.minWidth ?? DEFAULT_MIN_WIDTHS[column.fit]);
}

/** Returns the shown column to leave out next; undefined when all must stay. */
function findDropped(columns: readonly Column[], shown: readonly number[]): number | undefined {
  const [first] = shown
    .filter((index) => columns[index]?.dropOrder !== undefined)
    .sort((a, b) => (columns[a]?.dropOrder ?? 0) - (columns[b]?.dropOrder ?? 0));
  return first;
}

function getTotal(shown: readonly number[], widths: readonly number[], gap: number): number {
  const cells = shown.reduce((sum, index) => sum + (widths[index] ?? 0), 0);
  return cells + gap * Math.max(0, shown.length - 1);
}
