import pc from 'picocolors';
import type { CliIo } from '../io/io.js';

/** Colour functions; they return the text unchanged when colours are off. */
export type Style = ReturnType<typeof pc.createColors>;

/**
 * Creates the colour functions. Colours are on for a terminal unless `TERM=dumb`, and for every
 * output with `FORCE_COLOR`. `NO_COLOR` and `--no-color` turn colours off and take precedence.
 * @param isEnabled - False with `--no-color`.
 */
export function createStyle(io: CliIo, isEnabled: boolean): Style {
  const { env, stdout } = io;
  const isForced =
    env['FORCE_COLOR'] !== undefined && env['FORCE_COLOR'] !== '' && env['FORCE_COLOR'] !== '0';
  const hasColours =
    isEnabled && !env['NO_COLOR'] && (isForced || (stdout.isTTY && env['TERM'] !== 'dumb'));
  return pc.createColors(hasColours);
}

/** Returns the colour function for a state: green, red, yellow or dim. */
export function getToneColour(
  style: Style,
  tone: 'good' | 'bad' | 'busy' | 'quiet',
): (text: string) => string {
  return { good: style.green, bad: style.red, busy: style.yellow, quiet: style.dim }[tone];
}
