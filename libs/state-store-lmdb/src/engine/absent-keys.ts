import { compareKeys } from '@cloudless/state-store';

/** Most ranges: those of events and of the workloads whose replicas are created at the same time. */
const MAX_RANGES = 64;
/** Characters at the end in which a key may differ from the one before: digits of a padded number. */
const CHANGING_DIGITS = 4;

/** No key between both ends that belongs to the sequence has an entry; the ends may have one. */
interface AbsentRange {
  after: string;
  /** Undefined: the range has no end. */
  readonly before: string | undefined;
}

/**
 * Ranges of keys that have no entry. Replicas and events are numbered, so that most new keys follow
 * the newest one of their kind: when the key after that one is known, no new key has to be searched
 * in the data file. A range stays true because only the writer adds keys: the storage refuses to
 * write when the counters in the file show that another program has written. The storage has to call
 * {@link clear} when a group is not committed: the group may have deleted keys.
 */
export class AbsentKeys {
  /**
   * By what the keys of a sequence begin with. The range that was used last comes last. A range
   * tells nothing about the keys of other sequences, which may be added between its ends.
   */
  private readonly ranges = new Map<string, AbsentRange>();
  private lastUsed: AbsentRange | undefined;
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
    if (isFollowing) this.keep(toSequence(key), { after: key, before: readNext(key) });
  }

  /** Records that a key has an entry from now on. Most keys are added in ascending order. */
  recordPut(key: string): void {
    const range = this.find(key);
    if (range !== undefined) range.after = key;
  }

  /** Forgets all ranges. Call this method when the group that used them is not committed. */
  clear(): void {
    this.ranges.clear();
    this.lastUsed = undefined;
    this.lastMissed = '';
  }

  /** Returns the range that contains the key, and makes it the one that was used last. */
  private find(key: string): AbsentRange | undefined {
    const sequence = toSequence(key);
    const range = this.ranges.get(sequence);
    if (range === undefined || !contains(range, key)) return undefined;
    if (range !== this.lastUsed) this.keep(sequence, range);
    return range;
  }

  /** Keeps a range as the one that was used last, and drops the one that was not used longest. */
  private keep(sequence: string, range: AbsentRange): void {
    this.lastUsed = range;
    this.ranges.delete(sequence);
    this.ranges.set(sequence, range);
    if (this.ranges.size <= MAX_RANGES) return;
    const [unused = ''] = this.ranges.keys();
    this.ranges.delete(unused);
  }
}

function contains({ after, before }: AbsentRange, key: string): boolean {
  return compareKeys(after, key) < 0 && (before === undefined || compareKeys(key, before) < 0);
}

/** Returns true when both keys may be numbers of one sequence, in ascending order. */
function follows(before: string, key: string): boolean {
  return (
    key.length === before.length &&
    toSequence(before) === toSequence(key) &&
    compareKeys(before, key) < 0
  );
}

/** Returns what all keys of one sequence begin with. */
function toSequence(key: string): string {
  return key.slice(0, -CHANGING_DIGITS);
}
