import type { Timestamp } from '@bufbuild/protobuf/wkt';
import pc from 'picocolors';
import type { CliIo } from '../io/io.js';
import { formatInstant } from './human.js';
import { timestampMs } from './timestamp.js';

/**
 * How results are shown: colour functions, which return the text unchanged when colours are off,
 * the width of tables and the zone of times.
 */
export type Style = ReturnType<typeof pc.createColors> & {
  /** Width of the terminal in character cells. Absent: the output is no terminal, so no limit. */
  readonly tableWidth?: number | undefined;
  /** True with `--no-headers`: tables have no header. Default: false. */
  readonly hidesHeaders?: boolean;
  /**
   * Returns the minutes that local time is ahead of UTC at a time in milliseconds since the epoch.
   * Absent: times are shown in UTC.
   */
  readonly getUtcOffset?: ((timeMs: number) => number) | undefined;
};

/**
 * Creates the style of an output. Colours are on for a terminal unless `TERM=dumb`, and for every
 * output with `FORCE_COLOR`. `NO_COLOR` and `--no-color` turn colours off and take precedence.
 * @param choice - `hasColours`: false with `--no-color`. `isUtc`: true with `--utc`, which shows
 *   times in UTC instead of local time. `hidesHeaders`: true with `--no-headers`.
 */
export function createStyle(
  io: CliIo,
  {
    hasColours,
    isUtc,
    hidesHeaders,
  }: { readonly hasColours: boolean; readonly isUtc: boolean; readonly hidesHeaders: boolean },
): Style {
  const { env, stdout } = io;
  const isForced =
    env['FORCE_COLOR'] !== undefined && env['FORCE_COLOR'] !== '' && env['FORCE_COLOR'] !== '0';
  const isColoured =
    hasColours && !env['NO_COLOR'] && (isForced || (stdout.isTTY && env['TERM'] !== 'dumb'));
  return {
    ...pc.createColors(isColoured),
    tableWidth: stdout.isTTY ? stdout.columns : undefined,
    hidesHeaders,
    getUtcOffset: isUtc ? undefined : io.getUtcOffset,
  };
}

/** Returns the style of a section whose lines are indented by a number of spaces. */
export function indentStyle(style: Style, indent: number): Style {
  const { tableWidth } = style;
  return tableWidth === undefined ? style : { ...style, tableWidth: tableWidth - indent };
}

/**
 * Formats a time in the zone of the style, to the second: `2026-01-31T13:00:00+01:00`. Empty without
 * a time.
 */
export function formatStyledTime(time: Timestamp | undefined, style: Style): string {
  if (time === undefined) return '';
  const timeMs = timestampMs(time);
  return formatInstant(timeMs, style.getUtcOffset?.(timeMs) ?? 0);
}

/** Returns the colour function for a state: green, red, yellow or dim. */
export function getToneColour(
  style: Style,
  tone: 'good' | 'bad' | 'busy' | 'quiet',
): (text: string) => string {
  return { good: style.green, bad: style.red, busy: style.yellow, quiet: style.dim }[tone];
}
