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
import { BOOKMARK_MS } from './changes.js';
import type { SoftChanges, SoftKind } from './soft-changes.js';

/** Needs of {@link watchRecords}. */
export interface WatchDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly soft: SoftChanges;
}

/** What a watcher is to be told, with the revision up to which it has been told everything then. */
export type WatchNews<Shown> = { readonly revision: bigint } & (
  | { readonly kind: 'put'; readonly record: Shown }
  | { readonly kind: 'deleted'; readonly record: Shown }
  | { readonly kind: 'synced' }
  | { readonly kind: 'bookmark' }
);

/** What a watch shows: pictures of the records of one kind, made of other records too. */
export interface WatchSource<Kind extends RecordKind, Item> {
  readonly kind: Kind;
  /** All kinds of records that a picture is made of. */
  readonly madeOf: readonly RecordKind[];
  keyOf(record: RecordOf<Kind>): string;
  find(view: ClusterView, key: string): Stored<RecordOf<Kind>> | undefined;
  all(view: ClusterView): Iterable<Stored<RecordOf<Kind>>>;
  /** Whether the filter of the watch lets the record through. */
  wanted(record: RecordOf<Kind>): boolean;
  /**
   * The keys whose picture may be another after a change. One that comes from the history says
   * nothing of the time before it.
   */
  touchedBy(view: ClusterView, change: RecordChange | HistoricChange): Iterable<string>;
  touchedBySoft(view: ClusterView, nodeId: string, what: SoftKind): Iterable<string>;
  /** Makes what is sent, from the present state; undefined sends nothing. */
  toItem(news: WatchNews<RecordOf<Kind>>): Item | undefined;
}

type Seed = readonly [key: string, revision: bigint];

/**
 * Watches pictures: the present ones, then `synced`, then every change; or, after a revision, only
 * what changed since, then a bookmark. Level-triggered: what changes faster than the reader reads
 * is shown in its newest state.
 * @throws kind `compacted` when it cannot be resumed there; `unavailable` when the state no longer
 *   follows the store.
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
  const wantedNow = (key: string): RecordOf<Kind> | undefined => {
    const record = source.find(state.view(), key)?.value;
    return record !== undefined && source.wanted(record) ? record : undefined;
  };
  const mark = (keys: Iterable<string>, revision: bigint): void => {
    // Until it is known what the reader has seen, everything may concern it.
    for (const key of keys)
      if (shown?.has(key) !== false || wantedNow(key) !== undefined) queue.mark(key, revision);
  };
  if (afterRevision > 0n) await state.checkRevision(afterRevision);
  const unsubscribes = follow(deps, source, mark, (reason) => queue.end(reason));
  try {
    const start =
      afterRevision === 0n
        ? startAnew(state, source)
        : await resume(deps, source, afterRevision, signal);
    ({ shown } = start);
    queue.putBefore(start.seeds);
    const revision = (): bigint => queue.takenUpTo(state.view().revision);
    let left = new Set(start.seeds.map(([key]) => key)).size;
    let begun = false;
    let bookmarkAt = clock.now() + BOOKMARK_MS;
    for (;;) {
      if (!begun && left === 0) {
        begun = true;
        const first = source.toItem({
          kind: afterRevision === 0n ? 'synced' : 'bookmark',
          revision: revision(),
        });
        if (first !== undefined) yield first;
      }
      const turn = await queue.next(clock, signal, bookmarkAt);
      if (turn.kind === 'stopped') return;
      if (turn.kind === 'key') left -= 1;
      const item =
        turn.kind === 'silence'
          ? source.toItem({ kind: 'bookmark', revision: revision() })
          : show(turn.key);
      if (item === undefined) continue;
      yield item;
      bookmarkAt = clock.now() + BOOKMARK_MS;
    }
  } finally {
    for (const unsubscribe of unsubscribes) unsubscribe();
  }

  function show(key: string): Item | undefined {
    const record = wantedNow(key);
    const before = shown?.get(key);
    const revision = queue.takenUpTo(state.view().revision);
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
  /** What is to be sent first, in the order of its change. */
  readonly seeds: readonly Seed[];
  /** What the reader has already. */
  readonly shown: Map<string, Shown>;
}

/** Calls `mark` for every change from now on. */
function follow<Kind extends RecordKind, Item>(
  { state, soft }: WatchDeps,
  source: WatchSource<Kind, Item>,
  mark: (keys: Iterable<string>, revision: bigint) => void,
  onEnd: Parameters<ClusterState['onEnd']>[0],
): readonly (() => void)[] {
  return [
    state.subscribe((changes, revision) => {
      const view = state.view();
      for (const change of changes) mark(source.touchedBy(view, change), revision);
    }),
    // It comes after whatever made this revision, and must count as later, or a watch resumed there
    // would lack it.
    soft.subscribe((nodeId, what, revision) =>
      mark(source.touchedBySoft(state.view(), nodeId, what), revision + 1n),
    ),
    state.onEnd(onEnd),
  ];
}

function startAnew<Kind extends RecordKind, Item>(
  state: ClusterState,
  source: WatchSource<Kind, Item>,
): WatchStart<RecordOf<Kind>> {
  const present = [...source.all(state.view())].filter(({ value }) => source.wanted(value));
  return {
    seeds: present
      .map(({ value, revision }): Seed => [source.keyOf(value), revision])
      .sort(byRevision),
    shown: new Map(),
  };
}

/** What changed after a revision, by the store's history and by what is not in the store. */
async function resume<Kind extends RecordKind, Item>(
  { state, soft }: WatchDeps,
  source: WatchSource<Kind, Item>,
  after: bigint,
  signal: StopSignal,
): Promise<WatchStart<RecordOf<Kind>>> {
  const view = state.view();
  const until = view.revision;
  const softSeeds = (['liveness', 'usage'] as const).flatMap((what) =>
    [...soft.since(after, what)].flatMap(([nodeId, revision]) =>
      [...source.touchedBySoft(view, nodeId, what)].map((key): Seed => [key, revision + 1n]),
    ),
  );
  let shown = new Map(
    [...source.all(view)]
      .filter(({ value }) => source.wanted(value))
      .map(({ value }) => [source.keyOf(value), value]),
  );
  const seeds = new Map<string, bigint>();
  let changed = false;
  for await (const { revision, changes } of after < until
    ? state.changesAfter(after, source.madeOf, signal)
    : []) {
    for (const change of changes) {
      changed ||= change.kind === source.kind;
      for (const key of source.touchedBy(view, change))
        if (!seeds.has(key)) seeds.set(key, revision);
    }
    if (revision >= until) break;
  }
  if (changed) {
    const before = await state.recordsAt(source.kind, after);
    shown = new Map(
      [...before.values()]
        .filter((record) => source.wanted(record))
        .map((record) => [source.keyOf(record), record]),
    );
  }
  return { seeds: [...seeds, ...softSeeds].sort(byRevision), shown };
}

const byRevision = ([, a]: Seed, [, b]: Seed): number => (a < b ? -1 : a > b ? 1 : 0);
