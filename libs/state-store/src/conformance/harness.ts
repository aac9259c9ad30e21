import { expect } from '@jest/globals';
import { definedFields } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { Clock } from '@cloudless/base';
import type { Change, ChangeBatch, Operation, Revision, StateStore } from '../state-store.js';

/** Options with which the suite opens a store. */
export interface OpenStoreOptions {
  /** The only clock for the store's leases. */
  readonly clock: Clock;
  /** Changes to retain. */
  readonly historyLimit: number;
  /** Bytes of changes to retain. Default: the engine's own. */
  readonly historyBytes?: number;
}

/** Opens a new, empty store. */
export type OpenStore = (options: OpenStoreOptions) => Promise<StateStore>;

/** More changes than any test writes, so that nothing is compacted. */
export const AMPLE_HISTORY = 100_000;

/** Runs `test` with a new store, and closes the store afterwards. */
export async function withStore(
  open: OpenStore,
  test: (store: StateStore, clock: ManualClock) => Promise<void>,
  historyLimit = AMPLE_HISTORY,
  historyBytes?: number,
): Promise<void> {
  const clock = new ManualClock();
  const store = await open({
    clock,
    historyLimit,
    ...definedFields({ historyBytes }),
  });
  try {
    await test(store, clock);
  } finally {
    await store.close();
  }
}

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

export function text(value: Uint8Array | undefined): string | undefined {
  return value === undefined ? undefined : new TextDecoder().decode(value);
}

export function put(key: string, value = key): Operation {
  return { put: key, value: bytes(value) };
}

/** Writes one key in one transaction. */
export async function write(store: StateStore, key: string, value = key): Promise<Revision> {
  return (await store.txn([], [put(key, value)])).revision;
}

/** Reads every key under `prefix` with its value, in pages of `limit`. */
export async function readAll(
  store: StateStore,
  prefix = '',
  limit = 1_000,
  revision?: Revision,
): Promise<[string, string | undefined][]> {
  const found: [string, string | undefined][] = [];
  let page = await store.range({ prefix, limit, ...definedFields({ revision }) });
  for (;;) {
    expect(page.entries.length).toBeLessThanOrEqual(limit);
    found.push(
      ...page.entries.map(({ key, value }): [string, string | undefined] => [key, text(value)]),
    );
    if (page.next === undefined) return found;
    page = await store.range({ prefix, limit, after: page.next, revision: page.revision });
  }
}

/** Formats a change as `a=1` or `-a`. */
export function show(change: Change): string {
  return change.kind === 'put'
    ? `${change.entry.key}=${text(change.entry.value)}`
    : `-${change.key}`;
}

/** Formats a batch as `[revision, ...changes]`, and checks that its changes carry its revision. */
export function showBatch({ revision, changes }: ChangeBatch): [Revision, ...string[]] {
  for (const change of changes)
    expect(change.kind === 'put' ? change.entry.modRevision : change.modRevision).toBe(revision);
  return [revision, ...changes.map(show)];
}

/** Reads the next `count` batches of a watch. */
export async function takeBatches(
  watch: AsyncIterator<ChangeBatch>,
  count: number,
): Promise<[Revision, ...string[]][]> {
  const taken: [Revision, ...string[]][] = [];
  while (taken.length < count) {
    const next = await watch.next();
    if (next.done === true)
      throw new Error(`the watch ended after ${taken.length} of ${count} batches`);
    taken.push(showBatch(next.value));
  }
  return taken;
}

export function startWatch(
  store: StateStore,
  prefix: string,
  after: Revision,
): AsyncIterator<ChangeBatch> {
  return store.watch({ prefix, after })[Symbol.asyncIterator]();
}
