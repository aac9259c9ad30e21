import { durationMs } from '@bufbuild/protobuf/wkt';

/** Milliseconds of an optional duration; 0 when absent. */
export function toMs(duration: Parameters<typeof durationMs>[0] | undefined): number {
  return duration === undefined ? 0 : durationMs(duration);
}
