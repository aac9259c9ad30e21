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

/**
 * Describes the end of a login with a certificate that commands renew: `expires in 6d unless used, in
 * 89d at the latest`.
 * @param certificateMs - End of the newest certificate. A certificate that has expired cannot be
 *   renewed, so the login has ended with it.
 * @param loginMs - End of the login, however often it is used. Undefined: none.
 */
export function describeLoginEnd(
  certificateMs: number,
  loginMs: number | undefined,
  nowMs: number,
): string {
  const isLast = loginMs !== undefined && certificateMs >= loginMs;
  if (certificateMs <= nowMs || isLast) return describeExpiry(certificateMs, nowMs);
  const last = loginMs === undefined ? '' : `, in ${formatSpan(loginMs - nowMs)} at the latest`;
  return `${describeExpiry(certificateMs, nowMs)} unless used${last}`;
}
