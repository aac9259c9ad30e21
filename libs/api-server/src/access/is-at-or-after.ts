import { timestampMs, type Timestamp } from '@bufbuild/protobuf/wkt';

/** Returns true when a time is reached. False for an absent time, which means never. */
export function isAtOrAfter(nowMs: number, time: Timestamp | undefined): boolean {
  return time !== undefined && nowMs >= timestampMs(time);
}
