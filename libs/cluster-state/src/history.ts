import { definedFields, CloudlessError, errorKindOf, type StopSignal } from '@cloudless/base';
import type { Change, Revision, StateStore } from '@cloudless/state-store';
import {
  decodeRecord,
  toKey,
  parseKey,
  type RecordKind,
  type RecordOf,
} from './records/records.js';
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
  readonly follower: Pick<ViewFollower, 'failure' | 'onEnd' | 'waitForRevision'>;
}

/** Implements `ClusterState.changesAfter`. */
export async function* streamChangesAfter(
  source: HistorySource,
  after: Revision,
  kinds: readonly RecordKind[],
  signal: StopSignal,
): AsyncGenerator<HistoricChanges> {
  const { store, follower } = source;
  await checkRevision(source, after);
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  if (signal.aborted) return;
  signal.addEventListener('abort', stop);
  const unsubscribe = follower.onEnd(stop);
  try {
    // Watches all keys, so that every revision is delivered.
    for await (const { revision, changes } of store.watch({
      prefix: '',
      after,
      signal: stopping.signal,
    })) {
      yield { revision, changes: changes.flatMap((change) => toHistoricChanges(change, kinds)) };
    }
    if (follower.failure !== undefined) throw follower.failure;
  } catch (reason) {
    throw errorKindOf(reason) === 'compacted' ? createCompactedError(after, reason) : reason;
  } finally {
    unsubscribe();
    signal.removeEventListener('abort', stop);
  }
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
