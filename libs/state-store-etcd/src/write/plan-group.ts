/** Keys that a transaction uses, and its size. */
export interface PlannedTransaction {
  readonly compared: readonly string[];
  readonly written: readonly string[];
  /** Bytes of the encoded request, at most. */
  readonly bytes: number;
  /** True: the whole group would fail with it, for example because a lease has ended. */
  readonly mayFailGroup: boolean;
}

/**
 * Operations of one level of a transaction of etcd, plus the most operations of a transaction
 * nested in it (`--max-txn-ops`).
 */
export const MAX_GROUP_OPERATIONS = 128;
/** Bytes of one request. The default of `--max-request-bytes` is 1.5 MiB. */
export const MAX_GROUP_BYTES = 1_400_000;
/** Waiting transactions that one plan looks at. Bounds its time when many wait for one key. */
const MAX_SCANNED = 2_048;

/** How often each key is in use by transactions. */
class KeyUses {
  private readonly compared = new Map<string, number>();
  private readonly written = new Set<string>();

  add({ compared, written }: PlannedTransaction): void {
    for (const key of compared) this.compared.set(key, (this.compared.get(key) ?? 0) + 1);
    for (const key of written) this.written.add(key);
  }

  remove({ compared, written }: PlannedTransaction): void {
    for (const key of compared) {
      const left = (this.compared.get(key) ?? 0) - 1;
      if (left > 0) this.compared.set(key, left);
      else this.compared.delete(key);
    }
    for (const key of written) this.written.delete(key);
  }

  /** True when the order of both matters: one of them writes a key that the other one uses. */
  conflictsWith({ compared, written }: PlannedTransaction): boolean {
    return (
      written.some((key) => this.written.has(key) || this.compared.has(key)) ||
      compared.some((key) => this.written.has(key))
    );
  }
}

/**
 * Divides waiting transactions into groups, each of which becomes one transaction of etcd. etcd
 * evaluates all compares of a group before its first write, so a group has only transactions that
 * are independent of each other: none writes a key that another one compares or writes. The effect
 * is that of any serial order. A transaction never overtakes one on which it depends.
 */
export class GroupPlanner<Item extends PlannedTransaction> {
  private waiting: Item[] = [];
  private readonly inFlight = new KeyUses();

  get waitingCount(): number {
    return this.waiting.length;
  }

  add(item: Item): void {
    this.waiting.push(item);
  }

  /**
   * Removes the next group from the waiting transactions. Its keys are in use until {@link release}.
   * @returns Empty when every waiting transaction depends on one in flight.
   */
  take(): readonly Item[] {
    const group: Item[] = [];
    const skipped = new KeyUses();
    const grouped = new KeyUses();
    const left: Item[] = [];
    let bytes = 0;
    let operations = 0;
    const scanned = this.waiting.slice(0, MAX_SCANNED);
    for (const [index, item] of scanned.entries()) {
      const isBlocked =
        this.inFlight.conflictsWith(item) ||
        skipped.conflictsWith(item) ||
        grouped.conflictsWith(item);
      const isUngroupable = item.mayFailGroup && group.length > 0;
      if (isBlocked || isUngroupable) {
        skipped.add(item);
        left.push(item);
        continue;
      }
      const nextOperations = Math.max(operations, countOperations(item));
      const isFull =
        group.length > 0 &&
        (bytes + item.bytes > MAX_GROUP_BYTES ||
          group.length + 1 + nextOperations > MAX_GROUP_OPERATIONS);
      if (isFull) {
        left.push(...scanned.slice(index));
        break;
      }
      group.push(item);
      grouped.add(item);
      bytes += item.bytes;
      operations = nextOperations;
      if (item.mayFailGroup) {
        left.push(...scanned.slice(index + 1));
        break;
      }
    }
    this.waiting = [...left, ...this.waiting.slice(MAX_SCANNED)];
    for (const item of group) this.inFlight.add(item);
    return group;
  }

  /** Ends the use of the keys of a group whose outcome is known, or given up. */
  release(group: readonly Item[]): void {
    for (const item of group) this.inFlight.remove(item);
  }

  /**
   * Removes and returns the waiting transactions that `select` returns true for.
   * @param keys - Only transactions that compare one of these keys are asked about.
   */
  remove(keys: ReadonlySet<string>, select: (item: Item) => boolean): readonly Item[] {
    const removed = this.waiting.filter(
      (item) => item.compared.some((key) => keys.has(key)) && select(item),
    );
    if (removed.length === 0) return removed;
    const isRemoved = new Set(removed);
    this.waiting = this.waiting.filter((item) => !isRemoved.has(item));
    return removed;
  }
}

function countOperations({ compared, written }: PlannedTransaction): number {
  return Math.max(compared.length, written.length);
}
