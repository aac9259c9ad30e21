import { expect } from '@jest/globals';
import { definedFields } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { Clock } from '@cloudless/base';
import type {
  Change,
  ChangeBatch,
  LeaseId,
  Operation,
  Revision,
  StateStore,
} from '../state-store.js';

/** Options with which a suite opens a store. */
export interface OpenStoreOptions {
  /** Clock of the leases; the store must use no other clock. */
  readonly clock: Clock;
  /** Changes to retain. */
  readonly historyLimit: number;
  /** Bytes of changes to retain. Default: the default of the engine. */
  readonly historyBytes?: number;
}

/** In what an engine differs within the contract. */
export interface EngineTraits {
  /**
   * True: independent transactions that run at the same time may share one revision. Default: each
   * transaction has its own.
   */
  readonly sharesRevisions?: boolean;
  /**
   * True: leases run on the clock of a server, in real time, and are not shorter than
   * `minimumLeaseMs`. Default: leases run on the clock of {@link OpenStoreOptions} and end exactly.
   */
  readonly minimumLeaseMs?: number;
  /**
   * True: a slow reader may get changes that are no longer retained from buffers on the way.
   * Default: such a reader fails as `compacted`.
   */
  readonly buffersWatches?: boolean;
  /** Share of the runs of each property. Default 1; less for an engine behind a network. */
  readonly propertyScale?: number;
}

/** Opens a new, empty store. The suite closes the store. */
export type OpenStore = (options: OpenStoreOptions) => Promise<StateStore>;

/** More changes than any test writes, so that nothing is compacted. */
export const AMPLE_HISTORY = 100_000;

/** Runs `test` with a new store and the clock of the store, and closes the store afterwards. */
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

/** Encodes a text as UTF-8. */
export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Decodes UTF-8. */
export function text(value: Uint8Array | undefined): string | undefined {
  return value === undefined ? undefined : new TextDecoder().decode(value);
}

/** Returns a put without lease. The default value of a key is the key itself. */
export function put(key: string, value = key): Operation {
  return { put: key, value: bytes(value) };
}

/** Returns a put of a key on a lease. */
export function putLeased(key: string, lease: LeaseId, value = key): Operation {
  return { put: key, value: bytes(value), lease };
}

/**
 * Writes one key in one transaction.
 * @returns The revision of the transaction.
 */
export async function write(store: StateStore, key: string, value = key): Promise<Revision> {
  return (await store.txn([], [put(key, value)])).revision;
}

/**
 * Reads every key under `prefix` with its value, in pages of `limit` entries.
 * @param revision - Default: the newest.
 */
export async function readAll(
  store: StateStore,
  prefix = '',
  limit = 1_000,
  revision?: Revision,
): Promise<[string, string | undefined][]> {
  const pairs: [string, string | undefined][] = [];
  let page = await store.range({ prefix, limit, ...definedFields({ revision }) });
  for (;;) {
    expect(page.entries.length).toBeLessThanOrEqual(limit);
    pairs.push(
      ...page.entries.map(({ key, value }): [string, string | undefined] => [key, text(value)]),
    );
    if (page.next === undefined) return pairs;
    page = await store.range({ prefix, limit, after: page.next, revision: page.revision });
  }
}

/** Formats a change as `a=1` or `-a`. */
export function show(change: Change): string {
  return change.kind === 'put'
    ? `${change.entry.key}=${text(change.entry.value)}`
    : `-${change.key}`;
}

/** Formats a batch as `[revision, ...changes]`. Expects each change to have that revision. */
export function showBatch({ revision, changes }: ChangeBatch): [Revision, ...string[]] {
  for (const change of changes)
    expect(change.kind === 'put' ? change.entry.modRevision : change.modRevision).toBe(revision);
  return [revision, ...changes.map(show)];
}

/**
 * Reads the next `count` batches of a watch, in the form of {@link showBatch}.
 * @throws Error when the watch ends earlier.
 */
export async function readBatches(
  watch: AsyncIterator<ChangeBatch>,
  count: number,
): Promise<[Revision, ...string[]][]> {
  const batches: [Revision, ...string[]][] = [];
  while (batches.length < count) {
    const next = await watch.next();
    if (next.done === true)
      throw new Error(`the watch ended after ${batches.length} of ${count} batches`);
    batches.push(showBatch(next.value));
  }
  return batches;
}

/** Starts a watch of the changes after revision `after`. */
export function startWatch(
  store: StateStore,
  prefix: string,
  after: Revision,
): AsyncIterator<ChangeBatch> {
  return store.watch({ prefix, after })[Symbol.asyncIterator]();
}

/** Returns the number of runs of a property for an engine. */
export function countRuns(runs: number, { propertyScale = 1 }: EngineTraits): number {
  return Math.max(1, Math.ceil(runs * propertyScale));
}
