import type { Clock, StopSignal } from '@cloudless/base';
import type {
  ClusterState,
  ClusterView,
  HistoricChange,
  RecordChange,
  RecordKind,
  RecordOf,
  Stored,
} from '@cloudless/cluster-state';
import { ChangeQueue } from './change-queue.js';
import { BOOKMARK_MS } from './wakeup.js';
import type { LivenessChanges, VolatileKind } from './liveness-changes.js';

/** The ports of {@link watchRecords}. */
export interface WatchDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly livenessChanges: LivenessChanges;
}

/**
 * An update for the client of a watch. `revision`: once the update is sent, all changes up to this
 * revision were sent, so the watch can be resumed there.
 */
export type WatchUpdate<Shown> = { readonly revision: bigint } & (
  | { readonly kind: 'put'; readonly record: Shown }
  | { readonly kind: 'deleted'; readonly record: Shown }
  | { readonly kind: 'synced' }
  | { readonly kind: 'bookmark' }
);

/**
 * Defines the items of a watch. Each item is built from a record of one kind, identified by a key,
 * and may depend on records of other kinds too.
 */
export interface WatchSource<Kind extends RecordKind, Item> {
  readonly kind: Kind;
  /** All kinds of records that an item depends on. */
  readonly dependsOn: readonly RecordKind[];
  getKey(record: RecordOf<Kind>): string;
  findRecord(view: ClusterView, key: string): Stored<RecordOf<Kind>> | undefined;
  listRecords(view: ClusterView): Iterable<Stored<RecordOf<Kind>>>;
  /** Returns true when the record matches the filter of the watch. */
  matchesFilter(record: RecordOf<Kind>): boolean;
  /**
   * Returns the keys whose item may differ after a change of a record. A change from the history of
   * the store does not contain the previous record.
   */
  listAffectedKeys(view: ClusterView, change: RecordChange | HistoricChange): Iterable<string>;
  /** Returns the keys whose item may differ after a change of the live state of a node. */
  listKeysAffectedByLiveness(
    view: ClusterView,
    nodeId: string,
    kind: VolatileKind,
  ): Iterable<string>;
  /** Builds an item from the current state; undefined: no item is sent. */
  toItem(update: WatchUpdate<RecordOf<Kind>>): Item | undefined;
}

/** A key to send at the start of a watch, with the revision of its change. */
type InitialKey = readonly [key: string, revision: bigint];

/**
 * Watches records: sends the current items, then `synced`, then every change. When resumed after a
 * revision, sends the changes since then, then a bookmark, then every further change. A record that
 * changes several times before the client reads is sent once, in its newest state.
 * @param afterRevision - Revision to resume after; 0: start with the current items.
 * @throws kind `compacted` when the watch cannot be resumed at the revision; `unavailable` when the
 *   state no longer follows the store.
 */
export async function* watchRecords<Kind extends RecordKind, Item>(
  deps: WatchDeps,
  source: WatchSource<Kind, Item>,
  afterRevision: bigint,
  signal: StopSignal,
): AsyncGenerator<Item> {
  const { state, clock } = deps;
  const queue = new ChangeQueue();
  /** The records that the client has, by key; undefined until they are known. */
  let shown: Map<string, RecordOf<Kind>> | undefined;
  const findMatching = (key: string): RecordOf<Kind> | undefined => {
    const record = source.findRecord(state.view(), key)?.value;
    return record !== undefined && source.matchesFilter(record) ? record : undefined;
  };
  const mark = (keys: Iterable<string>, revision: bigint): void => {
    // Skips keys that the client does not have and that do not match the filter. Until `shown` is
    // known, no key can be skipped.
    for (const key of keys)
      if (shown?.has(key) !== false || findMatching(key) !== undefined) queue.mark(key, revision);
  };
  if (afterRevision > 0n) await state.checkRevision(afterRevision);
  const unsubscribes = follow(deps, source, mark, (reason) => queue.fail(reason));
  try {
    const start =
      afterRevision === 0n
        ? startFromCurrent(state, source)
        : await resume(deps, source, afterRevision, signal);
    ({ shown } = start);
    queue.putBefore(start.initialKeys);
    const getDeliveredRevision = (): bigint => queue.getDeliveredRevision(state.view().revision);
    /** Number of initial keys that were not sent yet. */
    let remaining = new Set(start.initialKeys.map(([key]) => key)).size;
    let isCaughtUp = false;
    let bookmarkAtMs = clock.now() + BOOKMARK_MS;
    for (;;) {
      if (!isCaughtUp && remaining === 0) {
        isCaughtUp = true;
        const first = source.toItem({
          kind: afterRevision === 0n ? 'synced' : 'bookmark',
          revision: getDeliveredRevision(),
        });
        if (first !== undefined) yield first;
      }
      const turn = await queue.next(clock, signal, bookmarkAtMs);
      if (turn.kind === 'stopped') return;
      if (turn.kind === 'key') remaining -= 1;
      const item =
        turn.kind === 'silence'
          ? source.toItem({ kind: 'bookmark', revision: getDeliveredRevision() })
          : createItem(turn.key);
      if (item === undefined) continue;
      yield item;
      bookmarkAtMs = clock.now() + BOOKMARK_MS;
    }
  } finally {
    for (const unsubscribe of unsubscribes) unsubscribe();
  }

  function createItem(key: string): Item | undefined {
    const record = findMatching(key);
    const before = shown?.get(key);
    const revision = queue.getDeliveredRevision(state.view().revision);
    if (record !== undefined) {
      shown?.set(key, record);
      return source.toItem({ kind: 'put', record, revision });
    }
    shown?.delete(key);
    return before === undefined
      ? undefined
      : source.toItem({ kind: 'deleted', record: before, revision });
  }
}

/** The start of a watch: the keys to send, and the records that the client has. */
interface WatchStart<Shown> {
  /** Keys to send first, in the order of their change. */
  readonly initialKeys: readonly InitialKey[];
  /** Records that the client has already, by key. */
  readonly shown: Map<string, Shown>;
}

/**
 * Calls `mark` for every change from now on, and `onEnd` when the state no longer follows the
 * store.
 * @returns Functions that end the subscriptions.
 */
function follow<Kind extends RecordKind, Item>(
  { state, livenessChanges }: WatchDeps,
  source: WatchSource<Kind, Item>,
  mark: (keys: Iterable<string>, revision: bigint) => void,
  onEnd: Parameters<ClusterState['onEnd']>[0],
): readonly (() => void)[] {
  return [
    state.subscribe((changes, revision) => {
      const view = state.view();
      for (const change of changes) mark(source.listAffectedKeys(view, change), revision);
    }),
    // The live state changed after the commit of this revision, so the change counts as one of the
    // next revision. Otherwise a watch that is resumed at this revision would miss the change.
    livenessChanges.subscribe((nodeId, kind, revision) =>
      mark(source.listKeysAffectedByLiveness(state.view(), nodeId, kind), revision + 1n),
    ),
    state.onEnd(onEnd),
  ];
}

/** Starts a watch with all current records that match the filter. */
function startFromCurrent<Kind extends RecordKind, Item>(
  state: ClusterState,
  source: WatchSource<Kind, Item>,
): WatchStart<RecordOf<Kind>> {
  const matching = [...source.listRecords(state.view())].filter(({ value }) =>
    source.matchesFilter(value),
  );
  return {
    initialKeys: matching
      .map(({ value, revision }): InitialKey => [source.getKey(value), revision])
      .sort(compareRevisions),
    shown: new Map(),
  };
}

/**
 * Starts a watch with the changes after a revision: those in the history of the store, and those of
 * the live state of nodes.
 */
async function resume<Kind extends RecordKind, Item>(
  { state, livenessChanges }: WatchDeps,
  source: WatchSource<Kind, Item>,
  after: bigint,
  signal: StopSignal,
): Promise<WatchStart<RecordOf<Kind>>> {
  const view = state.view();
  const until = view.revision;
  const livenessKeys = (['liveness', 'usage'] as const).flatMap((kind) =>
    [...livenessChanges.listChangedSince(after, kind)].flatMap(([nodeId, revision]) =>
      [...source.listKeysAffectedByLiveness(view, nodeId, kind)].map((key): InitialKey => [
        key,
        revision + 1n,
      ]),
    ),
  );
  let shown = new Map(
    [...source.listRecords(view)]
      .filter(({ value }) => source.matchesFilter(value))
      .map(({ value }) => [source.getKey(value), value]),
  );
  /** Revision of the first change in the history, by key. */
  const changedKeys = new Map<string, bigint>();
  let hasRecordChanged = false;
  for await (const { revision, changes } of after < until
    ? state.changesAfter(after, source.dependsOn, signal)
    : []) {
    for (const change of changes) {
      hasRecordChanged ||= change.kind === source.kind;
      for (const key of source.listAffectedKeys(view, change))
        if (!changedKeys.has(key)) changedKeys.set(key, revision);
    }
    if (revision >= until) break;
  }
  // Without a change of these records, the client has exactly the current ones.
  if (hasRecordChanged) {
    const before = await state.recordsAt(source.kind, after);
    shown = new Map(
      [...before.values()]
        .filter((record) => source.matchesFilter(record))
        .map((record) => [source.getKey(record), record]),
    );
  }
  return { initialKeys: [...changedKeys, ...livenessKeys].sort(compareRevisions), shown };
}

const compareRevisions = ([, a]: InitialKey, [, b]: InitialKey): number =>
  a < b ? -1 : a > b ? 1 : 0;
