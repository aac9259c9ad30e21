import type { StateStore } from '@cloudless/state-store';
import type { ClusterState } from '../cluster-state.js';
import {
  KEY_PREFIX,
  decodeRecord,
  parseKey,
  toKey,
  type RecordKind,
  type RecordOf,
} from '../records/records.js';
import type { Transaction } from '../transaction/transaction.js';
import { IndexedView } from '../view/view.js';

/**
 * Freezes every record of a view, and every record from the moment at which it is put into a
 * transaction. A change of a record, which the view shares with its readers and writers, then
 * throws a TypeError at the place of the change.
 */
export function freezeRecords(state: ClusterState): void {
  const view = state.view();
  if (view instanceof IndexedView) for (const [, , { value }] of view.entries()) freezeDeep(value);
  state.subscribe((changes) => {
    for (const { after } of changes) freezeDeep(after);
  });
  const createTransaction = state.transaction.bind(state);
  state.transaction = () => {
    const transaction = createTransaction();
    const put = transaction.put.bind(transaction);
    transaction.put = function putFrozen<Kind extends RecordKind>(
      kind: Kind,
      id: string,
      record: RecordOf<Kind>,
    ): Transaction {
      freezeDeep(record);
      return put(kind, id, record);
    } as Transaction['put'];
    return transaction;
  };
}

/**
 * Compares the records of a view with the records that a new process would read from the store.
 * @returns The keys of records that differ; empty when the view is exact.
 */
export async function listDifferences(
  state: ClusterState,
  store: StateStore,
  isEqual: (shown: unknown, stored: unknown) => boolean,
): Promise<readonly string[]> {
  const view = state.view();
  if (!(view instanceof IndexedView)) throw new TypeError('the state has another view');
  const shown = new Map<string, unknown>();
  for (const [kind, id, { value, revision }] of view.entries())
    shown.set(toKey(kind, id), { value, revision });
  const differences: string[] = [];
  let after: string | undefined;
  do {
    const page = await store.range({
      prefix: KEY_PREFIX,
      revision: view.revision,
      ...(after === undefined ? {} : { after }),
    });
    for (const { key, value, modRevision } of page.entries) {
      const parsed = parseKey(key);
      if (parsed === undefined) continue;
      const stored = { value: decodeRecord(parsed.kind, parsed.id, value), revision: modRevision };
      if (!isEqual(shown.get(key), stored)) differences.push(key);
      shown.delete(key);
    }
    after = page.next;
  } while (after !== undefined);
  return [...differences, ...shown.keys()];
}

/** Freezes a message and all messages and lists in it. Bytes cannot be frozen. */
function freezeDeep(value: unknown): void {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return;
  if (Object.isFrozen(value)) return;
  Object.freeze(value);
  for (const item of Object.values(value)) freezeDeep(item);
}
