import { CloudlessError } from '@cloudless/base';
import type { RangePage, RangeRequest, Revision, StoreEntry } from './state-store.js';
import type { StorageReader, StoredEntry, StoreHead } from './storage.js';
import { compareKeys } from './utf8.js';
import { DEFAULT_RANGE_LIMIT } from './validate.js';

/** One page of entries as of one revision, from what is stored now and the history since. */
export function readRange(reader: StorageReader, request: RangeRequest): RangePage {
  const head = reader.head();
  const { prefix, after, limit = DEFAULT_RANGE_LIMIT, revision = head.revision } = request;
  checkRetained(head, revision);
  const source =
    revision === head.revision
      ? reader.scan(prefix, after)
      : scanAt(reader, prefix, after, revision);
  const entries: StoreEntry[] = [];
  for (const entry of source) {
    const last = entries.at(-1);
    if (entries.length === limit && last !== undefined)
      return { entries, revision, next: last.key };
    entries.push(toStoreEntry(entry));
  }
  return { entries, revision };
}

/** @throws kind `compacted` or `invalid` when the history does not reach `revision`. */
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

/** What callers of the store see of an entry. */
export function toStoreEntry({ key, value, modRevision, lease }: StoredEntry): StoreEntry {
  return lease === undefined ? { key, value, modRevision } : { key, value, modRevision, lease };
}

/**
 * The entries as of an older revision: each key's first change since then tells what was there
 * before it.
 */
function* scanAt(
  reader: StorageReader,
  prefix: string,
  after: string | undefined,
  revision: Revision,
): Iterable<StoredEntry> {
  const before = new Map<string, StoredEntry | undefined>();
  for (const { changes } of reader.history(revision)) {
    for (const change of changes) {
      const asked =
        change.key.startsWith(prefix) &&
        (after === undefined || compareKeys(change.key, after) > 0);
      if (asked && !before.has(change.key)) before.set(change.key, change.before);
    }
  }
  const restored = [...before.values()]
    .filter((entry) => entry !== undefined)
    .sort((a, b) => compareKeys(a.key, b.key));
  let index = 0;
  for (const current of reader.scan(prefix, after)) {
    for (; index < restored.length; index += 1) {
      const entry = restored[index];
      if (entry === undefined || compareKeys(entry.key, current.key) > 0) break;
      yield entry;
    }
    if (!before.has(current.key)) yield current;
  }
  yield* restored.slice(index);
}
