import { formatSpan } from '../output/human.js';
import { toOneLine } from '../output/table.js';
import { getTextWidth, padText, shortenText } from '../output/text-width.js';
import type { Style } from '../output/style.js';

/** Sizes, times and colours for a picture. */
export interface PictureView {
  /** Width of the terminal in character cells. */
  readonly width: number;
  /** Number of lines that fit on the terminal. */
  readonly height: number;
  readonly nowMs: number;
  /** Milliseconds since the wait began. */
  readonly elapsedMs: number;
  readonly style: Style;
  /** True when the terminal shows characters beyond ASCII. */
  readonly hasUnicode: boolean;
}

/** A part of a line with one colour. */
export interface Segment {
  readonly text: string;
  readonly paint?: ((text: string) => string) | undefined;
}

/** The parts of a line from left to right. */
export type PictureLine = readonly Segment[];

/** Widest bar in characters. */
const MAX_BAR = 40;
/** Width of the texts beside a bar: its title, and counts such as `100 of 100, minimum 100`. */
const TEXTS_BESIDE_BAR = 40;
const TITLE_WIDTH = 7;

/**
 * Formats a picture. Lines are cut to the width; of too many lines, the last ones give way to a
 * count.
 * @param width - Width of the terminal in character cells.
 * @param height - Most lines, at least 1.
 */
export function formatPicture(
  lines: readonly PictureLine[],
  width: number,
  height: number,
): string {
  const shown =
    lines.length <= height
      ? lines
      : [
          ...lines.slice(0, height - 1),
          [{ text: `  and ${lines.length - height + 1} more lines` }],
        ];
  return shown.map((line) => formatLine(line, width)).join('\n');
}

function formatLine(line: PictureLine, width: number): string {
  let left = width;
  let formatted = '';
  for (const { text, paint } of line) {
    if (left <= 0) break;
    const fitting = shortenText(text, left);
    // Not even one wide character and the ellipsis fit.
    if (getTextWidth(fitting) > left) break;
    left -= getTextWidth(fitting);
    formatted += paint === undefined ? fitting : paint(fitting);
  }
  return formatted;
}

/** A bar with a title before and a text after. */
export interface Bar {
  readonly title: string;
  readonly count: number;
  /** Count of a full bar. */
  readonly scale: number;
  /** Count at which a mark is drawn: the required minimum. Default: none. */
  readonly mark?: number;
  readonly text: string;
  readonly paint: (text: string) => string;
}

/** Draws a bar: `ready  [#####|....] 5 of 9, minimum 5`. */
export function drawBar(
  { title, count, scale, mark = 0, text, paint }: Bar,
  view: PictureView,
): PictureLine {
  const { style, hasUnicode, width } = view;
  const barWidth = Math.max(8, Math.min(MAX_BAR, width - TEXTS_BESIDE_BAR));
  const toCells = (value: number): number =>
    Math.round((Math.min(value, scale) * barWidth) / Math.max(1, scale));
  const [full, empty, minimum, open, close] = hasUnicode
    ? ['█', '░', '┃', '', '']
    : ['#', '.', '|', '[', ']'];
  const filled = toCells(count);
  const markAt = mark > 0 ? Math.max(0, toCells(mark) - 1) : -1;
  const cells = Array.from({ length: barWidth }, (_, index): Segment => {
    if (index === markAt) return { text: minimum ?? '', paint: style.bold };
    return index < filled ? { text: full ?? '', paint } : { text: empty ?? '', paint: style.dim };
  });
  return [
    { text: padText(title, TITLE_WIDTH) },
    { text: open ?? '' },
    ...joinEqual(cells),
    { text: `${close ?? ''} ${text}` },
  ];
}

/** Joins neighbouring segments of the same colour. */
function joinEqual(segments: readonly Segment[]): readonly Segment[] {
  const joined: Segment[] = [];
  for (const segment of segments) {
    const last = joined.at(-1);
    if (last !== undefined && last.paint === segment.paint)
      joined[joined.length - 1] = { ...last, text: last.text + segment.text };
    else joined.push(segment);
  }
  return joined;
}

/** Draws the title line: the subject, what happens to it, and the elapsed time. */
export function drawTitle(
  subject: string,
  detail: string,
  { style, elapsedMs }: Pick<PictureView, 'style' | 'elapsedMs'>,
): PictureLine {
  return [
    { text: subject, paint: style.bold },
    ...(detail === '' ? [] : [{ text: `  ${detail}` }]),
    { text: `  ${formatSpan(elapsedMs)}`, paint: style.dim },
  ];
}

/** Draws the last line of a wait that has succeeded: the result in green, and the elapsed time. */
export function drawResult(
  text: string,
  { style, elapsedMs, hasUnicode }: PictureView,
): PictureLine {
  return [
    ...(hasUnicode ? [{ text: '✓ ', paint: style.green }] : []),
    { text: toOneLine(text), paint: style.green },
    { text: ` (${formatSpan(elapsedMs)})`, paint: style.dim },
  ];
}
