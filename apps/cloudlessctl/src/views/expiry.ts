import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { formatSpan } from '../output/human.js';
import type { Style } from '../output/style.js';
import type { Cell } from '../output/table.js';
import { timestampMs } from '../output/timestamp.js';

/** Time before the end of a validity from which on the end is shown in yellow: 3 days. */
const SOON_MS = 3 * 86_400_000;

/** Formats the end of a validity for a table: `expires in 12d`, or `expired 5m ago`. */
export function formatExpiry(
  time: Timestamp | undefined,
  nowMs: number,
  style: Style,
): Cell | string {
  if (time === undefined) return '';
  const leftMs = timestampMs(time) - nowMs;
  const text = describeExpiry(timestampMs(time), nowMs);
  if (leftMs <= 0) return { text, paint: style.red };
  return leftMs < SOON_MS ? { text, paint: style.yellow } : text;
}

/** Describes the end of a validity: `expires in 12d`, or `expired 5m ago`. */
export function describeExpiry(timeMs: number, nowMs: number): string {
  const leftMs = timeMs - nowMs;
  return leftMs > 0 ? `expires in ${formatSpan(leftMs)}` : `expired ${formatSpan(-leftMs)} ago`;
}
