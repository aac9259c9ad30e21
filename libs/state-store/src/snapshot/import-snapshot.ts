import { CloudlessError } from '@cloudless/base';
import type { StoreEntry } from '../state-store.js';
import type { Storage } from '../engine/storage.js';
import type { SnapshotSummary } from './format.js';
import { readSnapshot } from './read-snapshot.js';

/**
 * Bytes of keys and values in one commit, to bound its memory. A commit may exceed by one entry.
 */
const GROUP_BYTES = 1024 * 1024;
/** Entries in one commit, to bound its time. */
const GROUP_ENTRIES = 1_000;

/** Returns the entry that a restore keeps, with the same key and revisions. */
export type ChangeEntry = (entry: StoreEntry) => StoreEntry;

/**
 * Fills an empty storage from a snapshot. Entries keep their revisions; the store continues at the
 * revision of the snapshot, without earlier history. Does not close the storage. After an exception
 * the storage is incomplete: discard it.
 * @param changeEntry - Returns what to keep for an entry of the snapshot. Default: the entry.
 * @throws kind `precondition` when the storage is not empty or the snapshot is damaged; `exhausted`
 *   when the disk is full.
 */
export async function importSnapshot(
  storage: Storage,
  chunks: AsyncIterable<Uint8Array>,
  changeEntry: ChangeEntry = (entry) => entry,
): Promise<SnapshotSummary> {
  checkEmpty(storage);
  const entries = readSnapshot(chunks);
  try {
    for (;;) {
      const { group, summary } = await readGroup(entries);
      await storage.write((writer) => {
        for (const entry of group)
          writer.put({ ...changeEntry(entry), lease: undefined }, undefined);
        // 0 until the last group: no store reads the storage before the import is complete
        writer.setInitialRevision(summary?.revision ?? 0n);
      });
      if (summary !== undefined) return summary;
    }
  } finally {
    // closes the chunks when a write failed before the end of the snapshot
    await entries.return(undefined as never);
  }
}

function checkEmpty(storage: Storage): void {
  const isEmpty = storage.read((reader) => {
    const { revision, leaseCount } = reader.head();
    return revision === 0n && leaseCount === 0;
  });
  if (!isEmpty)
    throw new CloudlessError(
      'precondition',
      'a backup can only be restored into a new store, and this store is in use',
    );
}

/** Reads the entries of the next commit; `summary` is defined for the last group. */
async function readGroup(entries: AsyncGenerator<StoreEntry, SnapshotSummary>): Promise<{
  readonly group: readonly StoreEntry[];
  readonly summary: SnapshotSummary | undefined;
}> {
  const group: StoreEntry[] = [];
  for (let bytes = 0; bytes < GROUP_BYTES && group.length < GROUP_ENTRIES;) {
    const next = await entries.next();
    if (next.done === true) return { group, summary: next.value };
    group.push(next.value);
    bytes += next.value.key.length + next.value.value.byteLength;
  }
  return { group, summary: undefined };
}
