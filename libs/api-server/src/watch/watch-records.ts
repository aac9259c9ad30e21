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

export interface WatchDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly livenessChanges: LivenessChanges;
}

/** An update for a watcher, with the revision up to which everything has been sent after it. */
export type WatchUpdate<Shown> = { readonly revision: bigint } & (
  | { readonly kind: 'put'; readonly record: Shown }
  | { readonly kind: 'deleted'; readonly record: Shown }
  | { readonly kind: 'synced' }
  | { readonly kind: 'bookmark' }
);

/**
 * Defines a watch: API messages of the records of one kind, which may depend on other records too.
 */
export interface WatchSource<Kind extends RecordKind, Item> {
  readonly kind: Kind;
  /** All kinds of records that an item depends on. */
  readonly dependsOn: readonly RecordKind[];
  getKey(record: RecordOf<Kind>): string;
  findRecord(view: ClusterView, key: string): Stored<RecordOf<Kind>> | undefined;
  listRecords(view: ClusterView): Iterable<Stored<RecordOf<Kind>>>;
  /** True when the record matches the filter of the watch. */
  matchesFilter(record: RecordOf<Kind>): boolean;
  /**
   * Returns the keys whose item may differ after a change. A change from the history does not
   * contain the previous record.
   */
  listAffectedKeys(view: ClusterView, change: RecordChange | HistoricChange): Iterable<string>;
  /** Returns the keys whose item may differ after a change of state that is not in the store. */
  listKeysAffectedByLiveness(
    view: ClusterView,
    nodeId: string,
    what: VolatileKind,
  ): Iterable<string>;
  /** Builds an item from the current state; undefined sends nothing. */
  toItem(news: WatchUpdate<RecordOf<Kind>>): Item | undefined;
}

type InitialKey = readonly [key: string, revision: bigint];

/**
 * Watches records: sends the current items, then `synced`, then every change. When resumed after a
 * revision, sends only the changes since then, followed by a bookmark. Level-triggered: a record
 * that changes faster than the client reads is sent in its newest state.
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
  let shown: Map<string, RecordOf<Kind>> | undefined;
  const findMatching = (key: string): RecordOf<Kind> | undefined => {
    const record = source.findRecord(state.view(), key)?.value;
    return record !== undefined && source.matchesFilter(record) ? record : undefined;
  };
  const mark = (keys: Iterable<string>, revision: bigint): void => {
    // Until the state at the start is known, every key may be relevant.
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
    const revision = (): bigint => queue.getDeliveredRevision(state.view().revision);
    let remaining = new Set(start.initialKeys.map(([key]) => key)).size;
    let caughtUp = false;
    let bookmarkAt = clock.now() + BOOKMARK_MS;
    for (;;) {
      if (!caughtUp && remaining === 0) {
        caughtUp = true;
        const first = source.toItem({
          kind: afterRevision === 0n ? 'synced' : 'bookmark',
          revision: revision(),
        });
        if (first !== undefined) yield first;
      }
      const turn = await queue.next(clock, signal, bookmarkAt);
      if (turn.kind === 'stopped') return;
      if (turn.kind === 'key') remaining -= 1;
      const item =
        turn.kind === 'silence'
          ? source.toItem({ kind: 'bookmark', revision: revision() })
          : createItem(turn.key);
      if (item === undefined) continue;
      yield item;
      bookmarkAt = clock.now() + BOOKMARK_MS;
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

interface WatchStart<Shown> {
  /** Keys to send first, in the order of their change. */
  readonly initialKeys: readonly InitialKey[];
  /** Records that the client has already. */
  readonly shown: Map<string, Shown>;
}

/** Calls `mark` for every change from now on. @returns Functions that end the subscriptions. */
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
    // The change follows the commit of this revision, so it counts as later. Otherwise a watch that
    // is resumed at this revision would miss it.
    livenessChanges.subscribe((nodeId, what, revision) =>
      mark(source.listKeysAffectedByLiveness(state.view(), nodeId, what), revision + 1n),
    ),
    state.onEnd(onEnd),
  ];
}

function startFromCurrent<Kind extends RecordKind, Item>(
  state: ClusterState,
  source: WatchSource<Kind, Item>,
): WatchStart<RecordOf<Kind>> {
  const present = [...source.listRecords(state.view())].filter(({ value }) =>
    source.matchesFilter(value),
  );
  return {
    initialKeys: present
      .map(({ value, revision }): InitialKey => [source.getKey(value), revision])
      .sort(compareRevisions),
    shown: new Map(),
  };
}

/**
 * Collects the changes after a revision, from the history of the store and from the state that is
 * not in the store.
 */
async function resume<Kind extends RecordKind, Item>(
  { state, livenessChanges }: WatchDeps,
  source: WatchSource<Kind, Item>,
  after: bigint,
  signal: StopSignal,
): Promise<WatchStart<RecordOf<Kind>>> {
  const view = state.view();
  const until = view.revision;
  const livenessKeys = (['liveness', 'usage'] as const).flatMap((what) =>
    [...livenessChanges.listChangedSince(after, what)].flatMap(([nodeId, revision]) =>
      [...source.listKeysAffectedByLiveness(view, nodeId, what)].map((key): InitialKey => [
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
  const seeds = new Map<string, bigint>();
  let changed = false;
  for await (const { revision, changes } of after < until
    ? state.changesAfter(after, source.dependsOn, signal)
    : []) {
    for (const change of changes) {
      changed ||= change.kind === source.kind;
      for (const key of source.listAffectedKeys(view, change))
        if (!seeds.has(key)) seeds.set(key, revision);
    }
    if (revision >= until) break;
  }
  if (changed) {
    const before = await state.recordsAt(source.kind, after);
    shown = new Map(
      [...before.values()]
        .filter((record) => source.matchesFilter(record))
        .map((record) => [source.getKey(record), record]),
    );
  }
  return { initialKeys: [...seeds, ...livenessKeys].sort(compareRevisions), shown };
}

const compareRevisions = ([, a]: InitialKey, [, b]: InitialKey): number =>
  a < b ? -1 : a > b ? 1 : 0;
