import pc from 'picocolors';
import type { CliIo } from '../io.js';

/** Colours for people; every function gives its text back unchanged when colours are off. */
export type Style = ReturnType<typeof pc.createColors>;

/**
 * Colours on a terminal, unless `--no-color`, `NO_COLOR` or a dumb terminal says otherwise;
 * `FORCE_COLOR` turns them on elsewhere.
 */
export function styleOf(io: CliIo, wanted: boolean): Style {
  const { env, stdout } = io;
  const forced =
    env['FORCE_COLOR'] !== undefined && env['FORCE_COLOR'] !== '' && env['FORCE_COLOR'] !== '0';
  const on = wanted && !env['NO_COLOR'] && (forced || (stdout.isTTY && env['TERM'] !== 'dumb'));
  return pc.createColors(on);
}

/** The colour of a word that is good, bad or on its way. */
export function toneOf(
  style: Style,
  tone: 'good' | 'bad' | 'busy' | 'quiet',
): (text: string) => string {
  return { good: style.green, bad: style.red, busy: style.yellow, quiet: style.dim }[tone];
}
