import type { Terminal } from './io.js';

/** Size of a terminal that does not report its size. */
const DEFAULT_SIZE = { columns: 80, rows: 24 };

/** Returns the terminal when both standard input and output are a terminal; otherwise undefined. */
export function findTerminal(
  input: NodeJS.ReadStream,
  output: NodeJS.WriteStream,
): Terminal | undefined {
  return input.isTTY === true && output.isTTY === true
    ? new ProcessTerminal(input, output)
    : undefined;
}

class ProcessTerminal implements Terminal {
  constructor(
    private readonly input: NodeJS.ReadStream,
    private readonly output: NodeJS.WriteStream,
  ) {}

  get size(): Terminal['size'] {
    return {
      columns: this.output.columns || DEFAULT_SIZE.columns,
      rows: this.output.rows || DEFAULT_SIZE.rows,
    };
  }

  onResize(listener: () => void): () => void {
    this.output.on('resize', listener);
    return () => void this.output.off('resize', listener);
  }

  makeRaw(): () => void {
    this.input.setRawMode(true);
    return () => void this.input.setRawMode(false);
  }
}
