import { create } from '@bufbuild/protobuf';
import { TimestampSchema } from '@bufbuild/protobuf/wkt';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { LogEntrySchema, OutputStream, type LogEntry } from '../gen.js';

/** A line for {@link encodeLogBatch}. */
export interface BatchLine {
  readonly sequence: bigint;
  /** Milliseconds since the epoch. */
  readonly timeMs: number;
  readonly stream: OutputStream;
  /** The line in UTF-8, with bytes that are no UTF-8 replaced. */
  readonly text: Uint8Array;
  /** The exact bytes of the line. Absent when `text` contains no replaced bytes. */
  readonly raw?: Uint8Array;
  /** True when the line goes on in the next entry. */
  readonly partial: boolean;
}

const MS_PER_SECOND = 1_000;
const NANOS_PER_MS = 1_000_000;
/** Tags of the encoded fields: field number and wire type. */
const TAG = {
  entries: 0x0a,
  sequence: 0x18,
  time: 0x22,
  seconds: 0x08,
  nanos: 0x10,
  stream: 0x28,
  line: 0x32,
  raw: 0x3a,
  partial: 0x40,
};
/** Largest number of bytes of an entry beside its texts: tags, lengths and numbers. */
const ENTRY_OVERHEAD = 64;
/** Typical number of these bytes, for the first size of the buffer. */
const ESTIMATED_OVERHEAD = 24;

/**
 * Encodes lines as a LogBatch. An encoder of its own, because it runs for every line that a client
 * reads: it takes a tenth of the time of the generic encoder.
 * @param lines - Lines of one container, in order.
 */
export function encodeLogBatch(lines: readonly BatchLine[]): Uint8Array {
  const estimate = lines.reduce((sum, { text }) => sum + text.length + ESTIMATED_OVERHEAD, 0);
  const writer = new BatchWriter(estimate);
  for (const line of lines) writeEntry(writer, line);
  return writer.toBytes();
}

function writeEntry(
  writer: BatchWriter,
  { sequence, timeMs, stream, text, raw, partial }: BatchLine,
): void {
  const time = writer.encodeTime(timeMs);
  const number = toVarint(sequence);
  const size =
    1 +
    computeVarintSize(number) +
    2 +
    time.length +
    (stream === OutputStream.STDOUT ? 0 : 2) +
    (partial ? 2 : 0) +
    computeTextSize(text) +
    (raw === undefined ? 0 : computeTextSize(raw));
  writer.reserve(size + ENTRY_OVERHEAD);
  writer.writeByte(TAG.entries);
  writer.writeVarint(size);
  writer.writeByte(TAG.sequence);
  writer.writeVarint(number);
  writer.writeByte(TAG.time);
  writer.writeByte(time.length);
  writer.writeBytes(time);
  if (stream !== OutputStream.STDOUT) {
    writer.writeByte(TAG.stream);
    writer.writeByte(stream);
  }
  writer.writeText(TAG.line, text);
  if (raw !== undefined) writer.writeText(TAG.raw, raw);
  if (partial) {
    writer.writeByte(TAG.partial);
    writer.writeByte(1);
  }
}

/** Returns the encoded size of a text field. An empty text is the default and is not encoded. */
function computeTextSize({ length }: Uint8Array): number {
  return length === 0 ? 0 : 1 + computeVarintSize(length) + length;
}

/** Returns an integer for `writeVarint`: as a number when it is small, which is much faster. */
function toVarint(value: bigint): number | bigint {
  return value >= 0n && value <= 0x7fff_ffffn ? Number(value) : BigInt.asUintN(64, value);
}

function computeVarintSize(value: number | bigint): number {
  let size = 1;
  if (typeof value === 'number')
    for (let rest = value; rest > 0x7f; rest = Math.floor(rest / 0x80)) size += 1;
  else for (let rest = value; rest > 0x7fn; rest >>= 7n) size += 1;
  return size;
}

/** Writes protobuf fields into a buffer that grows. */
class BatchWriter {
  private buffer: Uint8Array;
  /** Number of bytes written. */
  private length = 0;
  /** The last encoded time. Many successive lines have the same millisecond. */
  private time: { readonly ms: number; readonly encoded: Uint8Array } | undefined;

  /** @param capacity - First size of the buffer, bytes. */
  constructor(capacity: number) {
    this.buffer = new Uint8Array(capacity);
  }

  toBytes(): Uint8Array {
    return this.buffer.subarray(0, this.length);
  }

  /**
   * Ensures that `bytes` more bytes fit. Call it first: the other methods write without a check.
   */
  reserve(bytes: number): void {
    if (this.length + bytes <= this.buffer.length) return;
    const larger = new Uint8Array(Math.max(this.buffer.length * 2, this.length + bytes));
    larger.set(this.buffer.subarray(0, this.length));
    this.buffer = larger;
  }

  writeByte(value: number): void {
    this.buffer[this.length] = value;
    this.length += 1;
  }

  writeVarint(value: number | bigint): void {
    if (typeof value === 'bigint') {
      let rest = value;
      for (; rest > 0x7fn; rest >>= 7n) this.writeByte(Number(rest & 0x7fn) | 0x80);
      this.writeByte(Number(rest));
      return;
    }
    let rest = value;
    for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) this.writeByte((rest % 0x80) | 0x80);
    this.writeByte(rest);
  }

  writeBytes(bytes: Uint8Array): void {
    this.buffer.set(bytes, this.length);
    this.length += bytes.length;
  }

  writeText(tag: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.writeByte(tag);
    this.writeVarint(bytes.length);
    this.writeBytes(bytes);
  }

  /** Returns the encoding of a time as Timestamp. */
  encodeTime(timeMs: number): Uint8Array {
    if (this.time?.ms === timeMs) return this.time.encoded;
    const seconds = Math.floor(timeMs / MS_PER_SECOND);
    const nanos = (timeMs - seconds * MS_PER_SECOND) * NANOS_PER_MS;
    const writer = new BatchWriter(ENTRY_OVERHEAD);
    if (seconds !== 0) {
      writer.writeByte(TAG.seconds);
      writer.writeVarint(toVarint(BigInt(seconds)));
    }
    if (nanos > 0) {
      writer.writeByte(TAG.nanos);
      writer.writeVarint(Math.floor(nanos));
    }
    const encoded = writer.toBytes();
    this.time = { ms: timeMs, encoded };
    return encoded;
  }
}

/**
 * Returns the lines of an entry: the lines of its `batch` as separate entries, or the entry itself
 * when it has no batch. Twice as fast as `fromBinary`.
 * @throws an Error when the batch is not an encoded LogBatch.
 */
export function decodeLines(entry: LogEntry): readonly LogEntry[] {
  const { batch, containerId, replicaId } = entry;
  if (batch === undefined) return [entry];
  const lines: LogEntry[] = [];
  const reader = new BinaryReader(batch);
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag();
    if (number !== 1 || wireType !== WireType.LengthDelimited) reader.skip(wireType, number);
    else {
      const line = create(LogEntrySchema);
      line.containerId = containerId;
      line.replicaId = replicaId;
      const end = reader.uint32() + reader.pos;
      if (end > reader.len) throw new RangeError('batch: a line ends beyond the end');
      readEntry(reader, end, line);
      lines.push(line);
    }
  }
  return lines;
}

function readEntry(reader: BinaryReader, end: number, line: LogEntry): void {
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    switch (number) {
      case 3:
        line.sequence = BigInt(reader.int64());
        break;
      case 4:
        line.time = readTime(reader);
        break;
      case 5:
        line.stream = reader.int32();
        break;
      case 6:
        line.line = reader.string();
        break;
      case 7:
        line.raw = reader.bytes();
        break;
      case 8:
        line.partial = reader.bool();
        break;
      default:
        reader.skip(wireType, number);
    }
  }
}

function readTime(reader: BinaryReader): NonNullable<LogEntry['time']> {
  const time = create(TimestampSchema);
  const end = reader.uint32() + reader.pos;
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    if (number === 1) time.seconds = BigInt(reader.int64());
    else if (number === 2) time.nanos = reader.int32();
    else reader.skip(wireType, number);
  }
  return time;
}
