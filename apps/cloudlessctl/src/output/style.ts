import pc from 'picocolors';
import type { CliIo } from '../io/io.js';

/** Colour functions; they return the text unchanged when colours are off. */
export type Style = ReturnType<typeof pc.createColors>;

/**
 * Creates the colours: on for a terminal, off with `--no-color`, `NO_COLOR` or `TERM=dumb`.
 * `FORCE_COLOR` turns them on for other outputs.
 */
export function createStyle(io: CliIo, wanted: boolean): Style {
  const { env, stdout } = io;
  const forced =
    env['FORCE_COLOR'] !== undefined && env['FORCE_COLOR'] !== '' && env['FORCE_COLOR'] !== '0';
  const on = wanted && !env['NO_COLOR'] && (forced || (stdout.isTTY && env['TERM'] !== 'dumb'));
  return pc.createColors(on);
}

/** Returns the colour function for a state. */
export function getTone(
  style: Style,
  tone: 'good' | 'bad' | 'busy' | 'quiet',
): (text: string) => string {
  return { good: style.green, bad: style.red, busy: style.yellow, quiet: style.dim }[tone];
}
