import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  encodeLogBatch,
  LogEntrySchema,
  OutputStream,
  SkippedLinesSchema,
  type BatchLine,
  type LogEntry,
} from '@cloudless/api';
import type { LogBatch, LogLine } from '@cloudless/runtime';

const strictDecoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const lenientDecoder = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * Decodes UTF-8 text. Bytes that are not UTF-8 become U+FFFD; only then `raw` is set, to the
 * original bytes.
 */
export function decodeOutput(bytes: Uint8Array): {
  readonly text: string;
  readonly raw?: Uint8Array;
} {
  try {
    return { text: strictDecoder.decode(bytes) };
  } catch {
    return { text: lenientDecoder.decode(bytes), raw: bytes }; // not UTF-8
  }
}

/** The container and the replica that wrote the lines. */
export interface LogOwner {
  readonly containerId: string;
  readonly replicaId: string;
}

/**
 * Converts lines that were read together to entries of the API. When lines are missing before them,
 * the first entry is a marker for the missing lines.
 * @param maxBatchBytes - About how many bytes of lines go into one entry; 0: one entry for each
 *   line.
 * @param nowMs - Time of the marker when `lines` is empty, milliseconds since the epoch.
 */
export function toLogEntries(
  { lines, skipped }: LogBatch,
  owner: LogOwner,
  maxBatchBytes: number,
  nowMs: number,
): readonly LogEntry[] {
  const entries: LogEntry[] = [];
  if (skipped !== undefined) {
    // The time of the next line keeps the marker in place when several replicas are sorted by time.
    const marker = createBookmark(owner, lines[0]?.timeMs ?? nowMs);
    entries.push(
      Object.assign(marker, { skipped: create(SkippedLinesSchema, toSkipped(skipped)) }),
    );
  }
  for (let from = 0; from < lines.length;) {
    const to = findBatchEnd(lines, from, maxBatchBytes);
    const line = lines[from];
    if (to - from === 1 && line !== undefined) entries.push(toLogEntry(line, owner));
    else entries.push(toBatchEntry(lines.slice(from, to), owner));
    from = to;
  }
  return entries;
}

/** Index after the last line of the batch that begins at `from`. A batch has at least one line. */
function findBatchEnd(lines: readonly LogLine[], from: number, maxBytes: number): number {
  let bytes = 0;
  let to = from;
  do {
    bytes += (lines[to]?.text.length ?? 0) + LINE_OVERHEAD_BYTES;
    to += 1;
  } while (to < lines.length && bytes < maxBytes);
  return to;
}

/** Approximate bytes of a line in a batch, without its text. */
const LINE_OVERHEAD_BYTES = 24;

function toBatchEntry(lines: readonly LogLine[], owner: LogOwner): LogEntry {
  const [first] = lines;
  return create(LogEntrySchema, {
    ...owner,
    sequence: first?.sequence ?? 0n,
    time: timestampFromMs(first?.timeMs ?? 0),
    lastSequence: lines.at(-1)?.sequence ?? 0n,
    batch: encodeLogBatch(lines.map(toBatchLine)) as Uint8Array<ArrayBuffer>,
  });
}

function toBatchLine({ sequence, timeMs, stream, text, partial }: LogLine): BatchLine {
  const fields = {
    sequence,
    timeMs,
    partial,
    stream: stream === 'stdout' ? OutputStream.STDOUT : OutputStream.STDERR,
  };
  if (isAscii(text)) return { ...fields, text };
  const { text: decoded, raw } = decodeOutput(text);
  return raw === undefined
    ? { ...fields, text }
    : { ...fields, text: encoder.encode(decoded), raw };
}

/** Most output is ASCII. Decoding it would cost more than all other handling of a line. */
function isAscii(bytes: Uint8Array): boolean {
  for (let index = 0; index < bytes.length; index += 1)
    if ((bytes[index] ?? 0) > 0x7f) return false;
  return true;
}

const encoder = new TextEncoder();

function toSkipped({ firstSequence, lastSequence, bytes }: NonNullable<LogBatch['skipped']>) {
  return { firstSequence, lastSequence, ...(bytes === undefined ? {} : { bytes: BigInt(bytes) }) };
}

/** Converts one line to an entry of the API. */
export function toLogEntry(line: LogLine, owner: LogOwner): LogEntry {
  const { text, raw } = decodeOutput(line.text);
  return create(LogEntrySchema, {
    ...owner,
    sequence: line.sequence,
    time: timestampFromMs(line.timeMs),
    stream: line.stream === 'stdout' ? OutputStream.STDOUT : OutputStream.STDERR,
    line: text,
    ...(raw === undefined ? {} : { raw: new Uint8Array(raw) }),
    partial: line.partial,
  });
}

/** Entry that contains the sequence number after which a log stream begins. */
export function createPosition(owner: LogOwner, position: bigint, nowMs: number): LogEntry {
  return Object.assign(createBookmark(owner, nowMs), { position });
}

/** Entry without a line, which the agent sends while the container writes nothing. */
export function createBookmark(owner: LogOwner, nowMs: number): LogEntry {
  return create(LogEntrySchema, { ...owner, sequence: 0n, time: timestampFromMs(nowMs) });
}
