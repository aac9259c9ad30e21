import { CloudlessError } from '@cloudless/base';
import type {
  Committed,
  Compare,
  Operation,
  RangePage,
  RangeRequest,
  Revision,
  StateStore,
  StoreEntry,
} from '../state-store.js';
import { RevisionConflictError } from '../state-store.js';
import type { HistoryRecorder, RecordedCall } from './history.js';

/** A call of the store. */
export type StoreInput =
  | { readonly kind: 'get'; readonly key: string }
  | { readonly kind: 'range'; readonly request: RangeRequest }
  | { readonly kind: 'revision' }
  | {
      readonly kind: 'txn';
      readonly compares: readonly Compare[];
      readonly operations: readonly Operation[];
    };

/** The answer of the store. */
export type StoreOutput =
  | { readonly kind: 'entry'; readonly entry: StoreEntry | undefined }
  | { readonly kind: 'page'; readonly page: RangePage }
  | { readonly kind: 'revision'; readonly revision: Revision }
  | { readonly kind: 'committed'; readonly revision: Revision }
  /** A compare did not hold. */
  | { readonly kind: 'conflict'; readonly scope: string; readonly changedAt: Revision | 'absent' }
  /** The call failed for another reason and has had no effect. */
  | { readonly kind: 'refused'; readonly reason: string };

export type StoreCall = RecordedCall<StoreInput, StoreOutput>;

/** Kinds of errors after which a write may have been committed. */
const UNKNOWN_OUTCOMES: readonly string[] = ['unavailable', 'deadline'];

/**
 * Wraps a store so that every read and transaction of one client is recorded. Watches and leases
 * pass unrecorded.
 * @param client - Name of the client, for messages.
 */
export function recordStoreCalls(
  store: StateStore,
  recorder: HistoryRecorder<StoreInput, StoreOutput>,
  client: string,
): StateStore {
  return {
    get: (key) =>
      recordCall(
        recorder,
        client,
        { kind: 'get', key },
        () => store.get(key),
        (entry) => ({
          kind: 'entry',
          entry,
        }),
      ),
    range: (request) =>
      recordCall(
        recorder,
        client,
        { kind: 'range', request },
        () => store.range(request),
        (page) => ({
          kind: 'page',
          page,
        }),
      ),
    revision: () =>
      recordCall(
        recorder,
        client,
        { kind: 'revision' },
        () => store.revision(),
        (revision) => ({
          kind: 'revision',
          revision,
        }),
      ),
    txn: (compares, operations): Promise<Committed> =>
      recordCall(
        recorder,
        client,
        { kind: 'txn', compares, operations },
        () => store.txn(compares, operations),
        ({ revision }) => ({ kind: 'committed', revision }),
      ),
    watch: (request) => store.watch(request),
    grantLease: (ttlMs) => store.grantLease(ttlMs),
    keepAlive: (lease) => store.keepAlive(lease),
    revokeLease: (lease) => store.revokeLease(lease),
    close: () => store.close(),
  };
}

/** Records one call, and gives the caller what the store gave: a result or an error. */
async function recordCall<Result>(
  recorder: HistoryRecorder<StoreInput, StoreOutput>,
  client: string,
  input: StoreInput,
  perform: () => Promise<Result>,
  toOutput: (result: Result) => StoreOutput,
): Promise<Result> {
  let settled: { readonly value: Result } | { readonly reason: unknown } | undefined;
  await recorder
    .record(client, input, async () => {
      try {
        const value = await perform();
        settled = { value };
        return toOutput(value);
      } catch (reason) {
        settled = { reason };
        return toRefusal(reason);
      }
    })
    .catch(() => undefined);
  if (settled !== undefined && 'value' in settled) return settled.value;
  throw settled?.reason as Error;
}

/**
 * Converts an error into the answer that the history records.
 * @throws The error itself, when a write may have been committed.
 */
function toRefusal(reason: unknown): StoreOutput {
  if (reason instanceof RevisionConflictError) {
    const { scope, changedAt } = reason;
    return { kind: 'conflict', scope, changedAt };
  }
  if (!(reason instanceof CloudlessError) || UNKNOWN_OUTCOMES.includes(reason.kind)) throw reason;
  return { kind: 'refused', reason: reason.message };
}
