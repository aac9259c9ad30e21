import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { CloudlessError } from '@cloudless/base';
import type { Compare, Operation, Revision, StateStore } from '../state-store.js';
import {
  AMPLE_HISTORY,
  bytes,
  countRuns,
  put,
  readAll,
  startWatch,
  readBatches,
  withStore,
  type EngineTraits,
  type OpenStore,
} from './harness.js';

/** Compares the store with a simple model over random sequences of calls. */
export function describeModel(open: OpenStore, traits: EngineTraits = {}): void {
  describe('any sequence of calls', () => {
    it.each([
      { name: 'with ample history', historyLimit: AMPLE_HISTORY },
      { name: 'with little history', historyLimit: 5 },
    ])('gives the same results as the model $name', ({ historyLimit }) =>
      fc.assert(
        fc.asyncProperty(fc.array(arbitraryStep, { maxLength: 40 }), (steps) =>
          withStore(open, (store) => new ModelRun(store, historyLimit).run(steps), historyLimit),
        ),
        { numRuns: countRuns(60, traits) },
      ),
    );
  });
}

const KEYS = ['a', 'a/b', 'ab', 'b', '\uffee', '😀'];
const arbitraryKey = fc.constantFrom(...KEYS);
const arbitraryPrefix = fc.constantFrom('', 'a', 'a/', '😀', 'none');

/**
 * One call of the store. `back` is the number of revisions before the newest, so that most
 * requested revisions exist.
 */
type Step =
  | {
      readonly kind: 'txn';
      readonly compares: readonly { key: string; holds: boolean }[];
      readonly puts: readonly string[];
      readonly deletes: readonly string[];
    }
  | { readonly kind: 'get'; readonly key: string }
  | {
      readonly kind: 'range';
      readonly prefix: string;
      readonly limit: number;
      readonly back: number;
    }
  | { readonly kind: 'watch'; readonly prefix: string; readonly back: number };

const arbitraryStep: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('txn' as const),
      // negated, because fast-check shrinks booleans to false
      compares: fc.array(
        fc.record({ key: arbitraryKey, holds: fc.boolean().map((fails) => !fails) }),
        {
          maxLength: 2,
        },
      ),
      puts: fc.subarray(KEYS, { maxLength: 3 }),
      deletes: fc.subarray(KEYS, { maxLength: 3 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('get' as const), key: arbitraryKey }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('range' as const),
      prefix: arbitraryPrefix,
      limit: fc.integer({ min: 1, max: 5 }),
      back: fc.nat(12),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('watch' as const),
      prefix: arbitraryPrefix,
      back: fc.nat(12),
    }),
  },
);

interface ModelEntry {
  readonly value: string;
  readonly modRevision: Revision;
}

/**
 * Runs steps on the store and on a model that keeps every state and every change, and expects equal
 * results.
 */
class ModelRun {
  /** State at each revision. */
  private readonly states: ReadonlyMap<string, ModelEntry>[] = [new Map()];
  /** Changes of each revision; none at revision 0. */
  private readonly changes: (readonly string[])[] = [[]];

  constructor(
    private readonly store: StateStore,
    private readonly historyLimit: number,
  ) {}

  async run(steps: readonly Step[]): Promise<void> {
    for (const [index, step] of steps.entries()) {
      if (step.kind === 'txn') await this.transact(step, `${index}`);
      else if (step.kind === 'get') await this.get(step.key);
      else if (step.kind === 'range') await this.range(step);
      else await this.watch(step);
      expect(await this.store.revision()).toBe(BigInt(this.newestRevision));
    }
  }

  private get newestRevision(): number {
    return this.states.length - 1;
  }

  private get state(): ReadonlyMap<string, ModelEntry> {
    return this.states[this.newestRevision] ?? new Map();
  }

  private async transact(step: Extract<Step, { kind: 'txn' }>, value: string): Promise<void> {
    const deletes = step.deletes.filter((key) => !step.puts.includes(key));
    const operations: Operation[] = [
      ...step.puts.map((key) => put(key, value)),
      ...deletes.map((key) => ({ delete: key })),
    ];
    const compares = step.compares.map(({ key, holds }): Compare => {
      const current = this.state.get(key)?.modRevision ?? 'absent';
      return { key, is: holds ? current : current === 'absent' ? 1_000n : 'absent' };
    });
    const attempt = this.store.txn(compares, operations);
    if (step.compares.some(({ holds }) => !holds)) {
      await expect(attempt).rejects.toMatchObject({ kind: 'conflict' });
      return;
    }
    this.apply(step.puts, deletes, value);
    expect(await attempt).toEqual({ revision: BigInt(this.newestRevision) });
  }

  private apply(puts: readonly string[], deletes: readonly string[], value: string): void {
    const present = deletes.filter((key) => this.state.has(key));
    if (puts.length + present.length === 0) return;
    const next = new Map(this.state);
    for (const key of puts) next.set(key, { value, modRevision: BigInt(this.newestRevision + 1) });
    for (const key of present) next.delete(key);
    this.states.push(next);
    this.changes.push([
      ...puts.map((key) => `${key}=${value}`),
      ...present.map((key) => `-${key}`),
    ]);
  }

  private async get(key: string): Promise<void> {
    const expected = this.state.get(key);
    const found = await this.store.get(key);
    expect(found).toEqual(
      expected && { key, value: bytes(expected.value), modRevision: expected.modRevision },
    );
  }

  private async range({ prefix, limit, back }: Extract<Step, { kind: 'range' }>): Promise<void> {
    const revision = Math.max(0, this.newestRevision - back);
    const expected = KEYS.flatMap((key): [string, string][] => {
      const entry = this.states[revision]?.get(key);
      return entry !== undefined && key.startsWith(prefix) ? [[key, entry.value]] : [];
    });
    const found = await this.allowCompacted(revision, () =>
      readAll(this.store, prefix, limit, BigInt(revision)),
    );
    if (found !== undefined) expect(found).toEqual(expected);
  }

  private async watch({ prefix, back }: Extract<Step, { kind: 'watch' }>): Promise<void> {
    const after = Math.max(0, this.newestRevision - back);
    const expected = this.changes.flatMap((changes, revision): [Revision, ...string[]][] => {
      const visible = changes.filter((change) => change.replace(/^-/u, '').startsWith(prefix));
      return revision > after && visible.length > 0 ? [[BigInt(revision), ...visible]] : [];
    });
    if (expected.length === 0) return;
    const found = await this.allowCompacted(after, () =>
      readBatches(startWatch(this.store, prefix, BigInt(after)), expected.length),
    );
    if (found !== undefined) expect(found).toEqual(expected);
  }

  /**
   * Resolves with undefined when `call` fails as `compacted`, which is valid only when more changes
   * than the history limit followed revision `after`.
   */
  private async allowCompacted<T>(after: number, call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (reason) {
      if (!(reason instanceof CloudlessError) || reason.kind !== 'compacted') throw reason;
      expect(this.changes.slice(after + 1).flat().length).toBeGreaterThan(this.historyLimit);
      return undefined;
    }
  }
}
