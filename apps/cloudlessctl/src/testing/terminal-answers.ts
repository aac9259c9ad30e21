import type { CliOptions } from './run-cli.js';

/**
 * Returns the options of a run on a terminal whose user types an answer.
 * @param answer - The typed text with its line feed; empty for Ctrl-D.
 */
export function anInteractiveTerminal(
  answer: string,
): Pick<CliOptions, 'isTTY' | 'stdin' | 'terminal'> {
  return {
    isTTY: true,
    stdin: { kind: 'terminal', text: answer },
    terminal: {
      size: { columns: 80, rows: 24 },
      onResize: () => () => undefined,
      makeRaw: () => () => undefined,
    },
  };
}
