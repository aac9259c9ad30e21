import type { Change, ChangeBatch, Revision, StateStore, StoreEntry } from '../state-store.js';

/** The value of a key from one revision on; without an entry, the key does not exist from there. */
export interface KeyVersion {
  readonly from: Revision;
  readonly entry: StoreEntry | undefined;
}

/** Every change of a store from its first revision on, as one watch delivered them. */
export class StoreLog {
  /** Changes of each revision, in the order of the revisions. */
  readonly batches: readonly ChangeBatch[];
  private readonly versionsByKey = new Map<string, KeyVersion[]>();

  /**
   * @param batches - All changes of the store, in the order of the revisions.
   */
  constructor(batches: readonly ChangeBatch[]) {
    this.batches = batches;
    for (const { revision, changes } of batches)
      for (const change of changes) {
        const versions = this.versionsByKey.get(keyOf(change)) ?? [ABSENT_AT_FIRST];
        this.versionsByKey.set(keyOf(change), versions);
        versions.push({ from: revision, entry: change.kind === 'put' ? change.entry : undefined });
      }
  }

  get keys(): Iterable<string> {
    return this.versionsByKey.keys();
  }

  get newestRevision(): Revision {
    return this.batches.at(-1)?.revision ?? 0n;
  }

  /** All versions of a key, oldest first; the first says that the key does not exist. */
  versionsOf(key: string): readonly KeyVersion[] {
    return this.versionsByKey.get(key) ?? [ABSENT_AT_FIRST];
  }

  /** The entry of a key at a revision. */
  entryAt(key: string, revision: Revision): StoreEntry | undefined {
    return this.versionsOf(key).findLast(({ from }) => from <= revision)?.entry;
  }

  /**
   * Returns the first revision from `lowest` on at which a version of the key satisfies `matches`.
   */
  findRevision(
    key: string,
    lowest: Revision,
    matches: (entry: StoreEntry | undefined) => boolean,
  ): Revision | undefined {
    const versions = this.versionsOf(key);
    for (const [index, { from, entry }] of versions.entries()) {
      const next = versions[index + 1]?.from;
      if (next !== undefined && next <= lowest) continue;
      if (matches(entry)) return from > lowest ? from : lowest;
    }
    return undefined;
  }
}

const ABSENT_AT_FIRST: KeyVersion = { from: 0n, entry: undefined };

/**
 * Reads every change of a store that has retained its whole history.
 * @param until - The newest revision to wait for; it must have changed a key under the prefix.
 * @param prefix - Default: all keys.
 */
export async function readStoreLog(
  store: StateStore,
  until: Revision,
  prefix = '',
): Promise<StoreLog> {
  const batches: ChangeBatch[] = [];
  if (until > 0n)
    for await (const batch of store.watch({ prefix, after: 0n })) {
      batches.push(batch);
      if (batch.revision >= until) break;
    }
  return new StoreLog(batches);
}

/** Returns the key of a change. */
export function keyOf(change: Change): string {
  return change.kind === 'put' ? change.entry.key : change.key;
}

/** Returns true for equal bytes. */
export function haveEqualBytes(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, index) => byte === other[index]);
}
