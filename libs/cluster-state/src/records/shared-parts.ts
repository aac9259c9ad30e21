import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt';
import type { ContainerFacts } from '@cloudless/api';
import { BigintCache } from '../codec/bigint-cache.js';
import { TimeCache } from '../codec/time-cache.js';

/** Texts that are kept to be shared. More would cost more to look up than they save. */
const MAX_TEXTS = 4_096;
/** Longest text that is kept, longer than a digest: agents choose the texts. */
const MAX_TEXT_LENGTH = 128;

const bigints = new BigintCache();
const times = new TimeCache();
const texts = new Map<string, string>();
/** The last result of {@link shareTimeFromMs}. */
let lastTime = { wallTimeMs: 0, time: shareTime(timestampFromMs(0)) };

/** Returns an equal bigint, the same object for equal ones where possible. */
export function shareBigint(value: bigint): bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) && number >= 0 ? bigints.get(number, number | 0) : value;
}

/**
 * Returns an equal, compact time, the same object for equal ones where possible. Do not change it:
 * other records have the same object.
 */
export function shareTime(time: Timestamp): Timestamp {
  const { $typeName, $unknown, seconds } = time;
  const nanos = time.nanos | 0; // as a small integer: a double would take 16 bytes more
  if ($unknown !== undefined || nanos !== time.nanos) return time;
  return times.share({ $typeName, seconds: shareBigint(seconds), nanos });
}

/**
 * Returns the time in milliseconds since 1970 as {@link shareTime} does. Fastest for the time of the
 * previous call: replicas that become ready together have one time.
 */
export function shareTimeFromMs(wallTimeMs: number): Timestamp {
  if (lastTime.wallTimeMs !== wallTimeMs)
    lastTime = { wallTimeMs, time: shareTime(timestampFromMs(wallTimeMs)) };
  return lastTime.time;
}

/**
 * Returns equal container facts in a compact object. Other records may share its runtime, image
 * digest and start time: do not change them.
 */
export function shareContainer(facts: ContainerFacts): ContainerFacts {
  const { $typeName, $unknown, pid, runtime, ip, runtimeId, imageDigest, startedAt } = facts;
  if ($unknown !== undefined) return facts;
  const sharedRuntime = shareText(runtime);
  const sharedDigest = shareText(imageDigest);
  // Two literals: V8 stores a field that is added to an object later outside of the object.
  return startedAt === undefined
    ? { $typeName, pid, runtime: sharedRuntime, ip, runtimeId, imageDigest: sharedDigest }
    : {
        $typeName,
        pid,
        runtime: sharedRuntime,
        ip,
        runtimeId,
        imageDigest: sharedDigest,
        startedAt: shareTime(startedAt),
      };
}

/** Returns an equal text, the same object for equal ones where possible. */
function shareText(text: string): string {
  if (text === '' || text.length > MAX_TEXT_LENGTH) return text;
  const known = texts.get(text);
  if (known !== undefined) return known;
  if (texts.size >= MAX_TEXTS) texts.clear();
  texts.set(text, text);
  return text;
}
