import { compareKeys } from '@cloudless/state-store';

/** Most ranges: those of events and of the workloads whose replicas are created at the same time. */
const MAX_RANGES = 64;
/** Characters at the end in which a key may differ from the one before: digits of a padded number. */
const CHANGING_DIGITS = 4;

/** No key between both ends has an entry; the ends themselves may have one. */
interface AbsentRange {
  after: string;
  /** Undefined: the range has no end. */
  readonly before: string | undefined;
}

/**
 * Ranges of keys that have no entry. Replicas and events are numbered, so that most new keys follow
 * the newest one of their kind: when the key after that one is known, no new key has to be searched
 * in the data file. A range stays true because only the writer adds keys: the storage refuses to
 * write when the counters in the file show that another program has written.
 */
export class AbsentKeys {
  /** The range that was used last comes first. No two ranges have a key in common. */
  private ranges: AbsentRange[] = [];
  private lastMissed = '';

  /** @returns True when the key has no entry; false when that is unknown. */
  has(key: string): boolean {
    return this.find(key) !== undefined;
  }

  /**
   * Learns from a key that was searched without success. Reads the key after it only if the key
   * follows the one searched before, because the read pays only if more such keys come.
   * @param readNext - Returns the first key after `key` that has an entry.
   */
  learn(key: string, readNext: (key: string) => string | undefined): void {
    const isFollowing = follows(this.lastMissed, key);
    this.lastMissed = key;
    if (!isFollowing) return;
    const learned: AbsentRange = { after: key, before: readNext(key) };
    const others = this.ranges.filter((range) => !overlap(range, learned));
    this.ranges = [learned, ...others.slice(0, MAX_RANGES - 1)];
  }

  /** Records that a key has an entry from now on. Most keys are added in ascending order. */
  recordPut(key: string): void {
    const range = this.find(key);
    if (range !== undefined) range.after = key;
  }

  clear(): void {
    this.ranges = [];
    this.lastMissed = '';
  }

  /** Returns the range that contains the key, and moves the range to the front. */
  private find(key: string): AbsentRange | undefined {
    const { ranges } = this;
    for (let index = 0; index < ranges.length; index += 1) {
      const range = ranges[index];
      if (range === undefined || !contains(range, key)) continue;
      for (let moved = index; moved > 0; moved -= 1)
        ranges[moved] = ranges[moved - 1] as AbsentRange;
      ranges[0] = range;
      return range;
    }
    return undefined;
  }
}

function contains({ after, before }: AbsentRange, key: string): boolean {
  return compareKeys(after, key) < 0 && isBefore(key, before);
}

function overlap(one: AbsentRange, other: AbsentRange): boolean {
  return isBefore(one.after, other.before) && isBefore(other.after, one.before);
}

/** @param end - Undefined: after every key. */
function isBefore(key: string, end: string | undefined): boolean {
  return end === undefined || compareKeys(key, end) < 0;
}

/** Returns true when both keys may be numbers of one sequence, in ascending order. */
function follows(before: string, key: string): boolean {
  return (
    key.length === before.length &&
    key.startsWith(before.slice(0, -CHANGING_DIGITS)) &&
    compareKeys(before, key) < 0
  );
}
