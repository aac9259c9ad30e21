import { definedFields, CloudlessError, errorKindOf, type StopSignal } from '@cloudless/base';
import type { Change, Revision, StateStore } from '@cloudless/state-store';
import {
  decodeRecord,
  toKey,
  parseKey,
  type RecordKind,
  type RecordOf,
} from './records/records.js';
import { ChangeBuffer } from './view/change-buffer.js';
import type { Stored } from './view/record-change.js';
import type { ViewFollower } from './view/view-follower.js';

/**
 * One record that a revision changed. `after` is absent when the record was deleted. The history
 * does not contain the previous value.
 */
export interface HistoricChange<Kind extends RecordKind = RecordKind> {
  readonly kind: Kind;
  readonly id: string;
  readonly after?: RecordOf<Kind>;
}

/** The changes of one revision, limited to the requested kinds. */
export interface HistoricChanges {
  readonly revision: Revision;
  readonly changes: readonly HistoricChange[];
}

export interface HistorySource {
  readonly store: StateStore;
  readonly follower: Pick<
    ViewFollower,
    'failure' | 'onBatch' | 'onEnd' | 'view' | 'waitForRevision'
  >;
  /** Revisions that may wait for one reader of the view. Default: that of {@link ChangeBuffer}. */
  readonly maxBuffered?: number;
}

/**
 * Implements `ClusterState.changesAfter`. Reads what the view has already shown from the store, and
 * what follows from the view, which all readers share: a watch of the store for each reader would
 * deliver and decode every change once for each of them.
 */
export async function* streamChangesAfter(
  source: HistorySource,
  after: Revision,
  kinds: readonly RecordKind[],
  signal: StopSignal,
): AsyncGenerator<HistoricChanges> {
  const { follower } = source;
  await checkRevision(source, after);
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  if (signal.aborted) return;
  signal.addEventListener('abort', stop);
  const unsubscribe = follower.onEnd(stop);
  let position = after;
  let buffer: ChangeBuffer | undefined;
  try {
    while (!stopping.signal.aborted) {
      if (position < follower.view.revision)
        for await (const batch of readStore(source, position, kinds, stopping.signal)) {
          yield batch;
          position = batch.revision;
        }
      // No change of the view is between this comparison and the subscription.
      if (stopping.signal.aborted || position < follower.view.revision) continue;
      buffer = new ChangeBuffer(follower, kinds, source.maxBuffered);
      for (;;) {
        const taken = await buffer.take(stopping.signal);
        if (taken.length === 0) break;
        for (const batch of taken) {
          if (stopping.signal.aborted) break;
          if (batch.revision <= position) continue; // the store was ahead of the view
          yield batch;
          position = batch.revision;
        }
      }
      buffer.close();
    }
    if (follower.failure !== undefined) throw follower.failure;
  } finally {
    buffer?.close();
    unsubscribe();
    signal.removeEventListener('abort', stop);
  }
}

/** Streams the changes after a revision from the store, until the view shows no later ones. */
async function* readStore(
  { store, follower }: HistorySource,
  after: Revision,
  kinds: readonly RecordKind[],
  signal: AbortSignal,
): AsyncGenerator<HistoricChanges> {
  try {
    // Watches all keys, so that every revision is delivered.
    for await (const { revision, changes } of store.watch({ prefix: '', after, signal })) {
      yield { revision, changes: changes.flatMap((change) => toHistoricChanges(change, kinds)) };
      if (revision >= follower.view.revision) return;
    }
    if (!signal.aborted)
      throw new CloudlessError('STORE_UNAVAILABLE', 'the state store was closed');
  } catch (reason) {
    throw errorKindOf(reason) === 'compacted' ? createCompactedError(after, reason) : reason;
  }
}

/** Implements `ClusterState.readRecord`. */
export async function readRecord<Kind extends RecordKind>(
  store: StateStore,
  kind: Kind,
  id: string,
): Promise<Stored<RecordOf<Kind>> | undefined> {
  const entry = await store.get(toKey(kind, id));
  if (entry === undefined) return undefined;
  const { key, value, modRevision: revision } = entry;
  return { value: decodeRecord(kind, id, value), revision, bytes: key.length + value.byteLength };
}

/** Implements `ClusterState.recordsAt`. */
export async function readRecordsAt<Kind extends RecordKind>(
  store: StateStore,
  kind: Kind,
  revision: Revision,
  pause: () => Promise<void>,
): Promise<ReadonlyMap<string, RecordOf<Kind>>> {
  const prefix = toKey(kind, '');
  const records = new Map<string, RecordOf<Kind>>();
  try {
    let after: string | undefined;
    do {
      const page = await store.range({
        prefix,
        revision,
        ...definedFields({ after }),
      });
      for (const { key, value } of page.entries) {
        const id = key.slice(prefix.length);
        records.set(id, decodeRecord(kind, id, value));
      }
      after = page.next;
      await pause();
    } while (after !== undefined);
  } catch (reason) {
    throw errorKindOf(reason) === 'compacted' ? createCompactedError(revision, reason) : reason;
  }
  return records;
}

/** Implements `ClusterState.checkRevision`. */
export async function checkRevision(
  { store, follower }: HistorySource,
  after: Revision,
): Promise<void> {
  if (follower.failure !== undefined) throw follower.failure;
  const newest = await store.revision();
  if (after > newest) {
    throw new CloudlessError(
      'compacted',
      `revision ${after} does not exist, the newest is ${newest}: it belongs to another cluster, or this cluster was restored to an older ` +
        'state; list or watch again, without after_revision',
    );
  }
  await follower.waitForRevision(after);
}

function createCompactedError(after: Revision, cause: unknown): CloudlessError {
  return new CloudlessError(
    'compacted',
    `what changed after revision ${after} is no longer kept; list or watch again, without after_revision`,
    { cause },
  );
}

function toHistoricChanges(change: Change, kinds: readonly RecordKind[]): HistoricChange[] {
  const parsed = parseKey(change.kind === 'put' ? change.entry.key : change.key);
  if (parsed === undefined || !kinds.includes(parsed.kind)) return [];
  if (change.kind === 'delete') return [parsed];
  return [{ ...parsed, after: decodeRecord(parsed.kind, parsed.id, change.entry.value) }];
}
