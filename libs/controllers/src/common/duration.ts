import { durationMs } from '@bufbuild/protobuf/wkt';

/** Converts an optional duration to milliseconds. Returns 0 for undefined. */
export function toMs(duration: Parameters<typeof durationMs>[0] | undefined): number {
  return duration === undefined ? 0 : durationMs(duration);
}
