import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { LogEntrySchema, OutputStream, type LogEntry } from '@cloudless/api';
import type { LogLine } from '@cloudless/runtime';

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const lenient = new TextDecoder('utf-8', { ignoreBOM: true });

/** Bytes as text; `raw` only when some had to be replaced by U+FFFD. */
export function decodeOutput(bytes: Uint8Array): { readonly text: string; readonly raw?: Uint8Array } {
  try {
    return { text: strict.decode(bytes) };
  } catch {
    return { text: lenient.decode(bytes), raw: bytes }; // not UTF-8
  }
}

/** A line of output as the API shows it. */
export function toLogEntry(line: LogLine, owner: { readonly containerId: string; readonly replicaId: string }): LogEntry {
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

/** Says after which line a stream begins. */
export function aPosition(
  owner: { readonly containerId: string; readonly replicaId: string },
  position: bigint,
  nowMs: number,
): LogEntry {
  return Object.assign(aBookmark(owner, nowMs), { position });
}

/** Says that the stream is alive though nothing was written. */
export function aBookmark(owner: { readonly containerId: string; readonly replicaId: string }, nowMs: number): LogEntry {
  return create(LogEntrySchema, { ...owner, sequence: 0n, time: timestampFromMs(nowMs) });
}
