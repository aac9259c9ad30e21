/** Values of the setting `--log-format`. */
export const LOG_FORMATS = ['auto', 'json', 'pretty'] as const;
/** `json`; `pretty`; `auto`, which is `pretty` on a terminal and otherwise `json`. */
export type LogFormat = (typeof LOG_FORMATS)[number];

/** How log lines are written. */
export interface LogStyle {
  readonly format: 'json' | 'pretty';
  /** Adds colours of ANSI terminals to lines in the format `pretty`. */
  readonly colors: boolean;
}

/**
 * Chooses how a program writes its log lines to a stream.
 * @param stream - `isTTY` is true when the stream is a terminal.
 * @param env - `NO_COLOR` turns colours off; `FORCE_COLOR`, unless `0`, turns colours on for a
 *   stream that is no terminal. See https://no-color.org.
 */
export function chooseLogStyle(
  choice: LogFormat,
  stream: { readonly isTTY?: boolean | undefined },
  env: Readonly<Record<string, string | undefined>>,
): LogStyle {
  const isTerminal = stream.isTTY === true;
  const isForced = (env['FORCE_COLOR'] ?? '0') !== '0' && env['FORCE_COLOR'] !== '';
  const hasColors = isForced || (isTerminal && env['TERM'] !== 'dumb');
  const format = choice === 'auto' ? (isTerminal ? 'pretty' : 'json') : choice;
  return { format, colors: format === 'pretty' && hasColors && !env['NO_COLOR'] };
}
