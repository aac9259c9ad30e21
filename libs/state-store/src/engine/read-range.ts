import { CloudlessError } from '@cloudless/base';
import type { RangePage, RangeRequest, Revision, StoreEntry } from '../state-store.js';
import { compareKeys } from '../utf8.js';
import { DEFAULT_RANGE_LIMIT, getChangedKey } from '../validate.js';
import type { StorageReader, StoredEntry, StoreHead } from './storage.js';

/**
 * Reads one page of entries at one revision, from the stored entries and the history after that
 * revision.
 * @param request - A request that `checkRange` has accepted.
 * @throws kind `compacted` or `invalid` as {@link checkRetained}.
 */
export function readRange(reader: StorageReader, request: RangeRequest): RangePage {
  const head = reader.head();
  const { prefix, after, limit = DEFAULT_RANGE_LIMIT, revision = head.revision } = request;
  checkRetained(head, revision);
  const source =
    revision === head.revision
      ? reader.scan(prefix, after)
      : scanAtRevision(reader, prefix, after, revision);
  const entries: StoreEntry[] = [];
  for (const entry of source) {
    const last = entries.at(-1);
    if (entries.length === limit && last !== undefined)
      return { entries, revision, next: last.key };
    entries.push(toStoreEntry(entry));
  }
  return { entries, revision };
}

/**
 * Checks that the history reaches back to `revision`.
 * @throws kind `compacted` when the history begins later; `invalid` for a revision that does not
 *   exist.
 */
export function checkRetained(head: StoreHead, revision: Revision): void {
  if (revision < 0n || revision > head.revision) {
    throw new CloudlessError(
      'invalid',
      `revision ${revision} does not exist; the newest is ${head.revision}`,
    );
  }
  if (revision < head.compactedRevision) {
    throw new CloudlessError(
      'compacted',
      `revision ${revision} is no longer retained; the oldest is ${head.compactedRevision}`,
    );
  }
}

/** Converts an entry of an engine to the form that callers of the store receive. */
export function toStoreEntry({ key, value, modRevision, lease }: StoredEntry): StoreEntry {
  return lease === undefined ? { key, value, modRevision } : { key, value, modRevision, lease };
}

/**
 * Yields the entries at an older revision. The first change of a key after that revision holds the
 * entry that the key had at that revision.
 */
function* scanAtRevision(
  reader: StorageReader,
  prefix: string,
  after: string | undefined,
  revision: Revision,
): Iterable<StoredEntry> {
  const changedKeys = new Map<string, StoredEntry | undefined>();
  for (const { changes, entriesBefore } of reader.history(revision)) {
    for (const [index, change] of changes.entries()) {
      const key = getChangedKey(change);
      const isRequested =
        key.startsWith(prefix) && (after === undefined || compareKeys(key, after) > 0);
      if (isRequested && !changedKeys.has(key)) changedKeys.set(key, entriesBefore[index]);
    }
  }
  const restored = [...changedKeys.values()]
    .filter((entry) => entry !== undefined)
    .sort((a, b) => compareKeys(a.key, b.key));
  let index = 0;
  for (const current of reader.scan(prefix, after)) {
    for (; index < restored.length; index += 1) {
      const entry = restored[index];
      if (entry === undefined || compareKeys(entry.key, current.key) > 0) break;
      yield entry;
    }
    if (!changedKeys.has(current.key)) yield current;
  }
  yield* restored.slice(index);
}
