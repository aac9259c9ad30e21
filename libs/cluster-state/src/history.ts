import {
  definedFields,
  CloudlessError,
  errorKindOf,
  Wakeup,
  type StopSignal,
} from '@cloudless/base';
import type { Change, Revision, StateStore } from '@cloudless/state-store';
import {
  decodeRecord,
  toKey,
  parseKey,
  type RecordKind,
  type RecordOf,
} from './records/records.js';
import type { RecentChanges } from './view/recent-changes.js';
import type { RecordChange, Stored } from './view/record-change.js';
import type { SharedRead } from './view/shared-read.js';
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
  /** The newest changes of the view. */
  readonly recent: RecentChanges;
  /** The newest revision of the store. */
  readonly newestRevision: SharedRead<Revision>;
}

/** Revisions that a reader takes at once, so that slow readers hold little. */
const TAKEN_AT_ONCE = 100;

/**
 * Implements `ClusterState.changesAfter`. All readers share the newest changes of the view: a watch
 * of the store for each reader would deliver and decode every change once for each of them. Only a
 * reader that is further behind reads the history of the store, until the shared changes follow.
 */
export async function* streamChangesAfter(
  source: HistorySource,
  after: Revision,
  kinds: readonly RecordKind[],
  signal: StopSignal,
): AsyncGenerator<HistoricChanges> {
  const { follower, recent } = source;
  await checkRevision(source, after);
  if (signal.aborted) return;
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  signal.addEventListener('abort', stop);
  const changed = new Wakeup();
  const unsubscribes = [follower.onEnd(stop), follower.onBatch(() => changed.wake())];
  let position = after;
  try {
    while (!stopping.signal.aborted) {
      if (!recent.covers(position)) {
        for await (const batch of readStore(source, position, kinds, stopping.signal)) {
          yield batch;
          position = batch.revision;
        }
        continue;
      }
      const taken = recent.listAfter(position, TAKEN_AT_ONCE);
      // No change of the view is between the list and the wait.
      if (taken.length === 0) await changed.wait(stopping.signal);
      for (const { revision, changes } of taken) {
        if (stopping.signal.aborted) break;
        yield { revision, changes: selectKinds(changes, kinds) };
        position = revision;
      }
    }
    if (follower.failure !== undefined) throw follower.failure;
  } finally {
    for (const unsubscribe of unsubscribes) unsubscribe();
    signal.removeEventListener('abort', stop);
  }
}

/** Streams the changes after a revision from the store, until the recent changes follow. */
async function* readStore(
  { store, recent }: HistorySource,
  after: Revision,
  kinds: readonly RecordKind[],
  signal: AbortSignal,
): AsyncGenerator<HistoricChanges> {
  try {
    // Watches all keys, so that every revision is delivered.
    for await (const { revision, changes } of store.watch({ prefix: '', after, signal })) {
      yield { revision, changes: changes.flatMap((change) => toHistoricChanges(change, kinds)) };
      if (recent.covers(revision)) return;
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
  { follower, newestRevision }: Pick<HistorySource, 'follower' | 'newestRevision'>,
  after: Revision,
): Promise<void> {
  if (follower.failure !== undefined) throw follower.failure;
  const newest = await newestRevision.read();
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

function selectKinds(
  changes: readonly RecordChange[],
  kinds: readonly RecordKind[],
): readonly HistoricChange[] {
  const selected = changes.filter(({ kind }) => kinds.includes(kind));
  return selected.length === 0 ? NO_CHANGES : selected;
}

const NO_CHANGES: readonly HistoricChange[] = [];

function toHistoricChanges(change: Change, kinds: readonly RecordKind[]): HistoricChange[] {
  const parsed = parseKey(change.kind === 'put' ? change.entry.key : change.key);
  if (parsed === undefined || !kinds.includes(parsed.kind)) return [];
  if (change.kind === 'delete') return [parsed];
  return [{ ...parsed, after: decodeRecord(parsed.kind, parsed.id, change.entry.value) }];
}
