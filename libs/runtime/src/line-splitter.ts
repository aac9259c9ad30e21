/** A longer line is cut into entries of this many bytes; the bound that `LogLine.text` promises. */
export const MAX_LINE_BYTES = 16 * 1024;

/** One entry cut out of a stream of output. */
export interface SplitLine {
  /** Bytes without the line feed. */
  readonly text: Uint8Array;
  /** The line goes on in the next entry. */
  readonly partial: boolean;
}

const NONE = new Uint8Array(0);
const LINE_FEED = 10;

/**
 * Cuts one output stream into lines. A line ends with a line feed; a carriage return before it is
 * kept, as it is output like any other. How the bytes were cut into chunks changes nothing.
 */
export class LineSplitter {
  private rest: Uint8Array;

  /** @param pending - What an earlier splitter held back as {@link LineSplitter.pending}. */
  constructor(pending: Uint8Array = NONE) {
    this.rest = pending;
  }

  /** The beginning of a line whose end has not been seen; at most {@link MAX_LINE_BYTES}. */
  get pending(): Uint8Array {
    return this.rest;
  }

  /**
   * Takes the next bytes and returns the entries that they complete. The chunk may be reused
   * afterwards.
   */
  feed(chunk: Uint8Array): readonly SplitLine[] {
    const lines: SplitLine[] = [];
    let start = 0;
    while (start < chunk.length) {
      const lineFeed = chunk.indexOf(LINE_FEED, start);
      const end = lineFeed < 0 ? chunk.length : lineFeed;
      this.append(chunk.subarray(start, end), lines);
      if (lineFeed >= 0) {
        lines.push({ text: this.rest, partial: false });
        this.rest = NONE;
      }
      start = end + 1;
    }
    return lines;
  }

  /** The output has ended: returns the last line if it had no line feed. */
  flush(): SplitLine | undefined {
    const text = this.rest;
    this.rest = NONE;
    return text.length === 0 ? undefined : { text, partial: false };
  }

  private append(part: Uint8Array, lines: SplitLine[]): void {
    let bytes = joined(this.rest, part);
    while (bytes.length > MAX_LINE_BYTES) {
      lines.push({ text: new Uint8Array(bytes.subarray(0, MAX_LINE_BYTES)), partial: true });
      bytes = bytes.subarray(MAX_LINE_BYTES);
    }
    this.rest = new Uint8Array(bytes); // a copy: the slice of a Buffer would share its memory
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array {
  if (first.length === 0) return second;
  if (second.length === 0) return first;
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}
