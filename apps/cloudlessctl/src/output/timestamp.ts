import type { Timestamp } from '@bufbuild/protobuf/wkt';

/**
 * Returns milliseconds since the epoch. The protobuf library has the same function, but every
 * command, even `version --client`, would load the library for it.
 */
export function timestampMs({ seconds, nanos }: Timestamp): number {
  return Number(seconds) * 1_000 + Math.round(nanos / 1_000_000);
}
