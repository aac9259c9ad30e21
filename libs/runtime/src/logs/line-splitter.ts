/** Largest size of `LogLine.text` in bytes. Longer lines are split into several entries. */
export const MAX_LINE_BYTES = 16 * 1024;

/** One log entry of an output stream. */
export interface SplitLine {
  /** Bytes without the line feed. */
  readonly text: Uint8Array;
  /** The line continues in the next entry. */
  readonly partial: boolean;
}

const NO_BYTES = new Uint8Array(0);
const LINE_FEED = 10;

/**
 * Splits one output stream into lines at line feeds. A carriage return before a line feed is kept.
 * The result does not depend on how the bytes are split into chunks.
 */
export class LineSplitter {
  private rest: Uint8Array;

  /** @param pending - {@link LineSplitter.pending} of a previous splitter of the same stream. */
  constructor(pending: Uint8Array = NO_BYTES) {
    this.rest = pending;
  }

  /** The bytes after the last line feed, at most {@link MAX_LINE_BYTES}. */
  get pending(): Uint8Array {
    return this.rest;
  }

  /** Adds bytes and returns the entries that they complete. The chunk may be reused afterwards. */
  feed(chunk: Uint8Array): readonly SplitLine[] {
    const lines: SplitLine[] = [];
    let start = 0;
    while (start < chunk.length) {
      const lineFeed = chunk.indexOf(LINE_FEED, start);
      const end = lineFeed < 0 ? chunk.length : lineFeed;
      this.append(chunk.subarray(start, end), lines);
      if (lineFeed >= 0) {
        lines.push({ text: this.rest, partial: false });
        this.rest = NO_BYTES;
      }
      start = end + 1;
    }
    return lines;
  }

  /**
   * Ends the output.
   * @returns The last line when it had no line feed, otherwise undefined.
   */
  flush(): SplitLine | undefined {
    const text = this.rest;
    this.rest = NO_BYTES;
    return text.length === 0 ? undefined : { text, partial: false };
  }

  /** Adds a part of a line to `rest`, and moves full entries to `lines`. */
  private append(part: Uint8Array, lines: SplitLine[]): void {
    let bytes = concat(this.rest, part);
    while (bytes.length > MAX_LINE_BYTES) {
      lines.push({ text: new Uint8Array(bytes.subarray(0, MAX_LINE_BYTES)), partial: true });
      bytes = bytes.subarray(MAX_LINE_BYTES);
    }
    this.rest = new Uint8Array(bytes); // a copy: the slice of a Buffer would share its memory
  }
}

function concat(first: Uint8Array, second: Uint8Array): Uint8Array {
  if (first.length === 0) return second;
  if (second.length === 0) return first;
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}
