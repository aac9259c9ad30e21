import { CloudlessError } from '@cloudless/base';
import type { StoreEntry } from '../state-store.js';
import type { Storage } from '../engine/storage.js';
import type { SnapshotSummary } from './format.js';
import { readSnapshot } from './read-snapshot.js';

/** Limits of one commit, to bound its memory. */
const GROUP_BYTES = 1024 * 1024;
const GROUP_ENTRIES = 1_000;

/**
 * Fills an empty storage from a snapshot. Entries keep their revisions; the store continues at the
 * snapshot's revision, without earlier history. After an exception the storage is incomplete and
 * must be discarded.
 * @throws kind `precondition` when the storage is not empty or the snapshot is damaged; `exhausted`
 *   when the disk is full.
 */
export async function importSnapshot(
  storage: Storage,
  chunks: AsyncIterable<Uint8Array>,
): Promise<SnapshotSummary> {
  checkEmpty(storage);
  const entries = readSnapshot(chunks);
  try {
    for (;;) {
      const { group, summary } = await readGroup(entries);
      await storage.write((writer) => {
        for (const entry of group) writer.put({ ...entry, lease: undefined }, undefined);
        // the storage is opened only after the import is complete
        writer.setInitialRevision(summary?.revision ?? 0n);
      });
      if (summary !== undefined) return summary;
    }
  } finally {
    // After a failed write the snapshot has not been read to its end.
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
