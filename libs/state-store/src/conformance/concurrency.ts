import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  RevisionConflictError,
  type Compare,
  type Revision,
  type StateStore,
} from '../state-store.js';
import {
  bytes,
  countRuns,
  put,
  readAll,
  text,
  withStore,
  type EngineTraits,
  type OpenStore,
} from './harness.js';

/** Declares the conformance tests of concurrent transactions. */
export function describeConcurrency(open: OpenStore, traits: EngineTraits = {}): void {
  describe('concurrent transactions', () => {
    it('lose no increment when each compares the revision that it read', () =>
      withStore(open, async (store) => {
        await Promise.all(Array.from({ length: 20 }, () => incrementOften(store, 'counter', 10)));
        expect(text((await store.get('counter'))?.value)).toBe('200');
        expect(await store.revision()).toBe(200n);
      }));

    it('let exactly one of many transactions create a key', () =>
      withStore(open, async (store) => {
        const attempts = Array.from({ length: 50 }, (_, index) =>
          store.txn([{ key: 'leader', is: 'absent' }], [put('leader', `${index}`)]),
        );
        const results = await Promise.allSettled(attempts);
        expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
        expect(await store.revision()).toBe(1n);
      }));

    it('keep the sum of all accounts at each revision during transfers', () =>
      withStore(open, async (store) => {
        const accounts = ['a', 'b', 'c'];
        await store.txn([], accounts.map((key) => put(key, '100'))); // prettier-ignore
        await Promise.all(
          Array.from({ length: 30 }, (_, index) =>
            transfer(store, accounts[index % 3] ?? '', accounts[(index + 1) % 3] ?? '', index),
          ),
        );
        for (let revision = 1n; revision <= (await store.revision()); revision += 1n) {
          const balances = await readAll(store, '', 2, revision);
          expect(balances.reduce((sum, [, amount]) => sum + Number(amount), 0)).toBe(300);
        }
      }));

    it('are strictly serializable for random compares, puts and deletes', () =>
      fc.assert(
        fc.asyncProperty(
          fc.array(fc.array(arbitraryAttempt, { minLength: 1, maxLength: 12 }), {
            minLength: 1,
            maxLength: 5,
          }),
          (rounds) => withStore(open, (store) => checkSerializable(store, rounds, traits)),
        ),
        { numRuns: countRuns(40, traits) },
      ));
  });
}

/** One transaction of a round. */
interface Attempt {
  /** Keys that are compared with their revision at the start of the round. */
  readonly compared: readonly string[];
  /** Keys that are put. At least one, so that each committed attempt has its own revision. */
  readonly written: readonly string[];
  /** Keys that are deleted; none of the keys that are put. */
  readonly deleted: readonly string[];
}

interface CompletedAttempt extends Attempt {
  readonly compares: readonly Compare[];
  readonly result: Revision | RevisionConflictError;
}

/** Mod revision of each existing key. */
type Model = ReadonlyMap<string, Revision>;

const KEYS = ['a', 'b', 'c', 'd'];
const arbitraryAttempt: fc.Arbitrary<Attempt> = fc
  .record({
    compared: fc.subarray(KEYS, { maxLength: 2 }),
    written: fc.subarray(KEYS, { minLength: 1 }),
    deleted: fc.subarray(KEYS),
  })
  .map(({ compared, written, deleted }) => ({
    compared,
    written,
    deleted: deleted.filter((key) => !written.includes(key)),
  }));

/**
 * Runs all attempts of a round at once, and checks the results and the state after the round. The
 * next round starts when all attempts have settled.
 */
async function checkSerializable(
  store: StateStore,
  rounds: readonly (readonly Attempt[])[],
  { sharesRevisions = false }: EngineTraits,
): Promise<void> {
  let state: Model = new Map();
  for (const round of rounds) {
    const start = await store.revision();
    const stateAtStart = state;
    const completed = await Promise.all(
      round.map(async (attempt): Promise<CompletedAttempt> => {
        const compares = attempt.compared.map((key): Compare => ({
          key,
          is: stateAtStart.get(key) ?? 'absent',
        }));
        const operations = [
          ...attempt.written.map((key) => put(key)),
          ...attempt.deleted.map((key) => ({ delete: key })),
        ];
        return { ...attempt, compares, result: await toResult(store.txn(compares, operations)) };
      }),
    );
    state = replay(state, start, completed, sharesRevisions);
    const { entries } = await store.range({ prefix: '' });
    expect(new Map(entries.map(({ key, modRevision }) => [key, modRevision]))).toEqual(state);
  }
}

/**
 * Replays the committed transactions in the order of their revisions, and checks each result
 * against the state at that point. Each conflict must have a failing compare in at least one state.
 * @param sharesRevisions - True: transactions may share a revision when none writes a key that
 *   another one of them uses, so that every order of them has the same effect.
 * @returns The state after the round.
 */
function replay(
  start: Model,
  startRevision: Revision,
  completed: readonly CompletedAttempt[],
  sharesRevisions: boolean,
): Model {
  const states = [start];
  const byRevision = groupByRevision(completed);
  expect(byRevision.map(([revision]) => revision)).toEqual(
    byRevision.map((_, index) => startRevision + BigInt(index + 1)),
  );
  for (const [index, [revision, group]] of byRevision.entries()) {
    if (!sharesRevisions) expect(group).toHaveLength(1);
    expectIndependent(group);
    const before = states[index] ?? start;
    const after = new Map(before);
    for (const { written, deleted, compares } of group) {
      expect(compares.every((compare) => compareHolds(before, compare))).toBe(true);
      for (const key of written) after.set(key, revision);
      for (const key of deleted) after.delete(key);
    }
    states.push(after);
  }
  for (const { result, compares } of completed) {
    if (result instanceof RevisionConflictError)
      expect(
        states.some((state) => !compares.every((compare) => compareHolds(state, compare))),
      ).toBe(true);
  }
  return states.at(-1) ?? start;
}

/** Returns the committed attempts of each revision, in the order of the revisions. */
function groupByRevision(
  completed: readonly CompletedAttempt[],
): readonly (readonly [Revision, readonly CompletedAttempt[]])[] {
  const groups = new Map<Revision, CompletedAttempt[]>();
  for (const attempt of completed) {
    if (typeof attempt.result !== 'bigint') continue;
    const group = groups.get(attempt.result);
    if (group === undefined) groups.set(attempt.result, [attempt]);
    else group.push(attempt);
  }
  return [...groups].sort(([a], [b]) => Number(a - b));
}

function expectIndependent(group: readonly CompletedAttempt[]): void {
  for (const { compared, written, deleted } of group) {
    const changed = [...written, ...deleted];
    for (const other of group) {
      if (other.compared === compared) continue;
      const used = [...other.compared, ...other.written, ...other.deleted];
      expect(changed.filter((key) => used.includes(key))).toEqual([]);
    }
  }
}

function compareHolds(state: Model, { key, is }: Compare): boolean {
  return (state.get(key) ?? 'absent') === is;
}

/** Resolves with the revision of the commit or with the conflict; other errors are thrown. */
async function toResult(
  txn: Promise<{ readonly revision: Revision }>,
): Promise<Revision | RevisionConflictError> {
  try {
    return (await txn).revision;
  } catch (reason) {
    if (reason instanceof RevisionConflictError) return reason;
    throw reason;
  }
}

/** Increments a counter `times` times; repeats an increment after a conflict. */
async function incrementOften(store: StateStore, key: string, times: number): Promise<void> {
  for (let done = 0; done < times;) {
    const entry = await store.get(key);
    const value = bytes(`${Number(text(entry?.value) ?? '0') + 1}`);
    const result = await toResult(
      store.txn([{ key, is: entry?.modRevision ?? 'absent' }], [{ put: key, value }]),
    );
    if (typeof result === 'bigint') done += 1;
  }
}

/** Moves `amount` between two accounts; repeats the transfer after a conflict. */
async function transfer(
  store: StateStore,
  from: string,
  to: string,
  amount: number,
): Promise<void> {
  for (;;) {
    const [source, target] = [await store.get(from), await store.get(to)];
    if (source === undefined || target === undefined) throw new Error('an account is gone');
    const compares = [source, target].map(({ key, modRevision }) => ({ key, is: modRevision }));
    const balanceOf = (value: Uint8Array): number => Number(text(value));
    const operations = [
      put(from, `${balanceOf(source.value) - amount}`),
      put(to, `${balanceOf(target.value) + amount}`),
    ];
    if (typeof (await toResult(store.txn(compares, operations))) === 'bigint') return;
  }
}
