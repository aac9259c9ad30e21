import { MAX_LINE_BYTES, type LogLine, type LogStream } from '@cloudless/runtime';

const LINE_FEED = 10;
const SPACE = 32;
/**
 * Largest header of an entry. Time, stream and tags are far shorter. A longer text without the end
 * of a header is not an entry.
 */
const MAX_HEADER_BYTES = 256;
/** The rest when no bytes are kept. */
const NONE = Buffer.alloc(0);

/** Header of an entry, before its text. */
interface Header {
  readonly timeMs: number;
  readonly stream: LogStream;
  /** True for the tag P: the line continues in the next entry of its stream. */
  readonly partial: boolean;
  /** Size of the header in bytes, which is the offset of the text. */
  readonly length: number;
}

/**
 * Parses the log file of a container from chunks of any size. Each entry is one line of the form
 * `time stream P|F text`. An entry with a text longer than {@link MAX_LINE_BYTES} becomes several
 * log lines. Text that is not an entry, for example after a crash or on a full disk, is skipped and
 * gets no number.
 * @see https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
 */
export class CriLogParser {
  /** Bytes of the incomplete entry at the end of the last chunk. */
  private rest: Buffer = NONE;
  /** Header of the entry whose first part has already been returned. */
  private openEntry: Header | undefined;
  /** True until the next line feed, while the current line is not an entry. */
  private isSkipping = false;
  private readonly times = new TimeParser();

  /** @param nextSequence - Sequence number of the first line. */
  constructor(private nextSequence: bigint) {}

  /** Sequence number of the next line. */
  get sequence(): bigint {
    return this.nextSequence;
  }

  /**
   * Returns the lines that these bytes complete, in order. Their texts are copies: the chunk may be
   * reused afterwards.
   */
  feed(chunk: Uint8Array): readonly LogLine[] {
    const bytes = Buffer.concat([this.rest, chunk]);
    const lines: LogLine[] = [];
    let start = 0;
    for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED, start)) {
      this.parseEntry(bytes.subarray(start, end), lines);
      this.openEntry = undefined;
      this.isSkipping = false;
      start = end + 1;
    }
    this.rest = this.parseIncompleteEntry(bytes.subarray(start), lines);
    return lines;
  }

  /** Parses a complete entry, or the last part of an entry whose beginning was returned. */
  private parseEntry(bytes: Buffer, lines: LogLine[]): void {
    if (this.isSkipping) return;
    const header = this.openEntry ?? parseHeader(bytes, this.times);
    if (header === undefined) return;
    const rest = this.splitLongText(
      header,
      this.openEntry === undefined ? bytes.subarray(header.length) : bytes,
      lines,
    );
    this.pushLine(header, rest, header.partial, lines);
  }

  /**
   * Parses an incomplete entry. Only a text longer than {@link MAX_LINE_BYTES} gives lines.
   * @returns The bytes to keep until more arrive.
   */
  private parseIncompleteEntry(bytes: Buffer, lines: LogLine[]): Buffer {
    if (this.isSkipping) return NONE;
    const wasOpen = this.openEntry !== undefined;
    const header = this.openEntry ?? parseHeader(bytes, this.times);
    if (header === undefined) {
      if (bytes.length <= MAX_HEADER_BYTES) return Buffer.from(bytes);
      this.isSkipping = true;
      return NONE;
    }
    const text = wasOpen ? bytes : bytes.subarray(header.length);
    if (text.length <= MAX_LINE_BYTES) return Buffer.from(bytes);
    this.openEntry = header;
    return Buffer.from(this.splitLongText(header, text, lines));
  }

  /** Adds the lines of a long text, and returns the last part, {@link MAX_LINE_BYTES} at most. */
  private splitLongText(header: Header, text: Buffer, lines: LogLine[]): Buffer {
    let rest = text;
    while (rest.length > MAX_LINE_BYTES) {
      this.pushLine(header, rest.subarray(0, MAX_LINE_BYTES), true, lines);
      rest = rest.subarray(MAX_LINE_BYTES);
    }
    return rest;
  }

  private pushLine(
    { timeMs, stream }: Header,
    text: Buffer,
    partial: boolean,
    lines: LogLine[],
  ): void {
    const view = new Uint8Array(text.buffer, text.byteOffset, text.length);
    lines.push({ sequence: this.nextSequence, stream, timeMs, text: view, partial });
    this.nextSequence += 1n;
  }
}

/** Parses the header of an entry; undefined when the bytes do not begin with a header. */
function parseHeader(bytes: Buffer, times: TimeParser): Header | undefined {
  const first = bytes.indexOf(SPACE);
  const second = first < 0 ? -1 : bytes.indexOf(SPACE, first + 1);
  const third = second < 0 ? -1 : bytes.indexOf(SPACE, second + 1);
  if (third < 0 || third >= MAX_HEADER_BYTES) return undefined;
  const stream = bytes.toString('latin1', first + 1, second);
  const tag = bytes.toString('latin1', second + 1, third).split(':', 1)[0];
  if ((stream !== 'stdout' && stream !== 'stderr') || (tag !== 'P' && tag !== 'F'))
    return undefined;
  const timeMs = times.parse(bytes.toString('latin1', 0, first));
  return Number.isNaN(timeMs)
    ? undefined
    : { timeMs, stream, partial: tag === 'P', length: third + 1 };
}

/** `2016-10-06T00:17:09`, a fraction of a second in three digits or more, and a time zone. */
const TIME = /^([0-9T:-]{19})\.(\d{3})\d*(Z|[+-]\d\d:\d\d)$/;

/**
 * Parses the times of entries. Consecutive entries mostly have the same second, so the parser keeps
 * the last second and parses it only once.
 */
class TimeParser {
  private second = '';
  private zone = '';
  private secondMs = Number.NaN;

  /** Returns milliseconds since the epoch; NaN for a text that is not a time. */
  parse(text: string): number {
    const [, second, milliseconds, zone] = TIME.exec(text) ?? [];
    if (second === undefined || zone === undefined) return Date.parse(text);
    if (second !== this.second || zone !== this.zone) {
      this.second = second;
      this.zone = zone;
      this.secondMs = Date.parse(second + zone);
    }
    return this.secondMs + Number(milliseconds);
  }
}
