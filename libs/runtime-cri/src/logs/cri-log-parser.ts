import { MAX_LINE_BYTES, type LogLine, type LogStream } from '@cloudless/runtime';

const LINE_FEED = 10;
const SPACE = 32;
/**
 * Longest header of an entry. Time, stream and tags are far shorter; longer text without an end of
 * the header is no entry.
 */
const MAX_HEADER_BYTES = 256;
const NONE = Buffer.alloc(0);

/** Header of an entry, before its text. */
interface Header {
  readonly timeMs: number;
  readonly stream: LogStream;
  readonly partial: boolean;
  /** Offset of the text. */
  readonly length: number;
}

/**
 * Parses the log file of a container, `time stream P|F text`, from chunks of any size. An entry
 * longer than {@link MAX_LINE_BYTES} becomes several lines. Text that is no entry (torn by a crash
 * or a full disk) is skipped and not counted.
 * @see https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
 */
export class CriLogParser {
  private rest: Buffer = NONE;
  /** Header of the entry whose first part has already been returned. */
  private openEntry: Header | undefined;
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

  /** Parses a complete entry, or the rest of an entry. */
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
   * Parses an incomplete entry: adds the parts that are too long to wait for the end.
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
 * Parses the times of entries. Many entries in a row are of the same second, which is parsed once.
 */
class TimeParser {
  private second = '';
  private zone = '';
  private secondMs = Number.NaN;

  /** Returns milliseconds since the epoch; NaN for text that is no time. */
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
