import { fromJson } from '@bufbuild/protobuf';
import { TimestampSchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { CliFailure, ExitCode } from '../call/failure.js';
import { parseDuration } from '../quantity.js';

/**
 * Parses the value of `--since`: a duration before now, or an RFC 3339 time.
 * @param nowMs - Wall-clock time in milliseconds since the epoch.
 */
export function parseSince(text: string, nowMs: number): Timestamp {
  const duration = parseDuration(text);
  if ('value' in duration && duration.value >= 0n)
    return timestampFromMs(nowMs - Number(duration.value / 1_000_000n));
  try {
    return fromJson(TimestampSchema, text);
  } catch (reason) {
    throw new CliFailure(
      ExitCode.usage,
      `--since: expected a duration such as 10m or a time such as 2026-01-31T12:00:00Z, got ${JSON.stringify(text)}`,
      {
        cause: reason,
      },
    );
  }
}
