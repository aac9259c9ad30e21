import type {
  Change,
  Compare,
  Operation,
  RangePage,
  RangeRequest,
  Revision,
} from '../state-store.js';
import { compareKeys } from '../utf8.js';
import { checkLogOrder } from './check-watch.js';
import type { StoreCall, StoreInput, StoreOutput } from './store-history.js';
import { haveEqualBytes, keyOf, type StoreLog } from './store-log.js';

type TxnInput = Extract<StoreInput, { kind: 'txn' }>;
type OutputOf<Kind extends StoreOutput['kind']> = Extract<StoreOutput, { kind: Kind }>;

/** Default of `RangeRequest.limit`. */
const DEFAULT_LIMIT = 1_000;

/**
 * Checks that a recorded history of a store is strictly serializable. The revisions give the order
 * of the transactions, so the check needs no search: it decides in O(n log n) whether every call
 * can take effect at one revision, such that the revisions never go back from a call to a call that
 * began later than the return of the first.
 *
 * Each transaction must put at least one value that no other transaction puts, so that the changes
 * of the log identify their transaction. Transactions that share a revision must write different
 * keys. Deletions of keys that had a lease are always allowed.
 * @param log - All changes of the store, read by a watch after the last call.
 * @returns The violations: lost, doubled and invented writes, conditions that did not hold, stale
 *   reads, reads from the future, and results that no state explains. Empty for a correct store.
 */
export function checkStoreHistory(log: StoreLog, calls: Iterable<StoreCall>): readonly string[] {
  const ordered = [...calls].sort((a, b) => a.calledAt - b.calledAt);
  const { revisions, problems } = findWrites(log, ordered);
  return [...checkLogOrder(log), ...problems, ...checkOrder(log, ordered, revisions)];
}

/** Finds the revision of each transaction that changed something. */
function findWrites(
  log: StoreLog,
  calls: readonly StoreCall[],
): { readonly revisions: ReadonlyMap<StoreCall, Revision>; readonly problems: readonly string[] } {
  const revisions = new Map<StoreCall, Revision>();
  const problems: string[] = [];
  const acknowledged = new Map<Revision, StoreCall[]>();
  const unknown = new Set<StoreCall>();
  for (const call of calls) {
    const output = call.result?.output;
    if (call.input.kind !== 'txn') continue;
    if (output === undefined) unknown.add(call);
    else if (output.kind === 'committed')
      acknowledged.set(output.revision, [...(acknowledged.get(output.revision) ?? []), call]);
  }
  for (const { revision, changes } of log.batches) {
    const remaining = new Map(changes.map((change) => [keyOf(change), change]));
    const claim = (call: StoreCall): boolean => {
      const written = effectOf(log, call.input as TxnInput, revision);
      if (written.length === 0 || !written.every((one) => isAmong(one, remaining))) return false;
      for (const operation of written) remaining.delete(keyOfOperation(operation));
      revisions.set(call, revision);
      return true;
    };
    for (const call of acknowledged.get(revision) ?? []) claim(call);
    for (const call of unknown) if (remaining.size > 0 && claim(call)) unknown.delete(call);
    for (const change of remaining.values())
      if (!isEndOfLease(log, change, revision))
        problems.push(
          `revision ${revision} ${describeChange(change)}, which no call of the history explains${describeWriters(calls, change)}`,
        );
  }
  return { revisions, problems };
}

/**
 * Gives each call, in the order of the calls, the lowest possible revision: at least the revision of
 * every call that had returned before. This finds an order whenever there is one, because only
 * lower bounds restrict a later call.
 */
function checkOrder(
  log: StoreLog,
  calls: readonly StoreCall[],
  revisions: ReadonlyMap<StoreCall, Revision>,
): readonly string[] {
  const problems: string[] = [];
  const revisionOf = new Map<StoreCall, Revision>();
  const byReturn = calls
    .filter(({ result }) => result !== undefined)
    .sort((a, b) => (a.result?.returnedAt ?? 0) - (b.result?.returnedAt ?? 0));
  let returned = 0;
  let lowest = 0n;
  for (const call of calls) {
    for (
      ;
      (byReturn[returned]?.result?.returnedAt ?? call.calledAt) < call.calledAt;
      returned += 1
    ) {
      const revision = revisionOf.get(byReturn[returned] as StoreCall) ?? 0n;
      if (revision > lowest) lowest = revision;
    }
    const placed = placeCall(log, call, revisions.get(call), lowest);
    if (typeof placed === 'bigint') revisionOf.set(call, placed);
    else if (placed !== undefined) problems.push(`${call.client}: ${placed}`);
  }
  return problems;
}

/**
 * Returns the lowest revision from `lowest` on whose state explains the call, a text for a
 * violation, or undefined for a call that had no effect.
 */
function placeCall(
  log: StoreLog,
  { input, result }: StoreCall,
  written: Revision | undefined,
  lowest: Revision,
): Revision | string | undefined {
  if (input.kind === 'txn' && written !== undefined) return placeWrite(log, input, written, lowest);
  if (result === undefined || result.output.kind === 'refused') return undefined;
  const { output } = result;
  switch (input.kind) {
    case 'txn':
      return output.kind === 'conflict'
        ? placeConflict(log, input, output, lowest)
        : placeWithoutEffect(log, input, output as OutputOf<'committed'>, lowest);
    case 'get':
      return placeGet(log, input.key, output as OutputOf<'entry'>, lowest);
    case 'range':
      return placeRange(log, input.request, (output as OutputOf<'page'>).page, lowest);
    case 'revision': {
      const { revision } = output as OutputOf<'revision'>;
      return revision < lowest ? `read revision ${revision} after revision ${lowest}` : revision;
    }
  }
}

function placeWrite(
  log: StoreLog,
  { compares, operations }: TxnInput,
  written: Revision,
  lowest: Revision,
): Revision | string {
  const text = describeOperations(operations);
  if (written <= lowest)
    return `${text} took effect at revision ${written}, but the call began after revision ${lowest} was known`;
  const failed = compares.find((compare) => !compareHolds(log, compare, written - 1n));
  return failed === undefined
    ? written
    : `${text} was committed at revision ${written} although ${describeCompare(log, failed, written - 1n)}`;
}

function placeConflict(
  log: StoreLog,
  { compares, operations }: TxnInput,
  { scope, changedAt }: OutputOf<'conflict'>,
  lowest: Revision,
): Revision | string {
  const compared = compares.find(({ key, is }) => key === scope && is !== changedAt);
  const revision =
    compared === undefined
      ? undefined
      : log.findRevision(scope, lowest, (entry) => (entry?.modRevision ?? 'absent') === changedAt);
  return (
    revision ??
    `${describeOperations(operations)} was refused because ${scope} was at ${changedAt}, which it was at no revision from ${lowest} on`
  );
}

function placeWithoutEffect(
  log: StoreLog,
  input: TxnInput,
  { revision }: OutputOf<'committed'>,
  lowest: Revision,
): Revision | string {
  const text = describeOperations(input.operations);
  const changes = input.operations.filter(
    (operation) => 'put' in operation || log.entryAt(operation.delete, revision) !== undefined,
  );
  if (changes.length > 0)
    return `${text} was acknowledged with revision ${revision}, but the log does not have this change`;
  if (revision < lowest)
    return `${text} was acknowledged with revision ${revision} after revision ${lowest} was known`;
  const failed = input.compares.find((compare) => !compareHolds(log, compare, revision));
  return failed === undefined
    ? revision
    : `${text} was acknowledged although ${describeCompare(log, failed, revision)}`;
}

function placeGet(
  log: StoreLog,
  key: string,
  { entry }: OutputOf<'entry'>,
  lowest: Revision,
): Revision | string {
  const isSame = (version: typeof entry): boolean =>
    version?.modRevision === entry?.modRevision &&
    (version === undefined || entry === undefined || haveEqualBytes(version.value, entry.value));
  return (
    log.findRevision(key, lowest, isSame) ??
    `read ${key} as of revision ${entry?.modRevision ?? 'absent'}, which it had at no revision from ${lowest} on`
  );
}

function placeRange(
  log: StoreLog,
  request: RangeRequest,
  page: RangePage,
  lowest: Revision,
): Revision | string | undefined {
  const { prefix, after, limit = DEFAULT_LIMIT } = request;
  const keys = [...log.keys]
    .filter((key) => key.startsWith(prefix) && (after === undefined || compareKeys(key, after) > 0))
    .filter((key) => log.entryAt(key, page.revision) !== undefined)
    .sort(compareKeys);
  const expected = keys
    .slice(0, limit)
    .map((key) => `${key}@${log.entryAt(key, page.revision)?.modRevision}`);
  const found = page.entries.map(({ key, modRevision }) => `${key}@${modRevision}`);
  if (expected.join() !== found.join())
    return `read the range ${prefix} at revision ${page.revision} as [${found.join(' ')}] instead of [${expected.join(' ')}]`;
  if (request.revision !== undefined)
    return request.revision === page.revision
      ? undefined
      : `requested revision ${request.revision} and got revision ${page.revision}`;
  return page.revision < lowest
    ? `read the range ${prefix} at revision ${page.revision} after revision ${lowest} was known`
    : page.revision;
}

function compareHolds(log: StoreLog, { key, is }: Compare, revision: Revision): boolean {
  return (log.entryAt(key, revision)?.modRevision ?? 'absent') === is;
}

/** Returns the operations that change the state before `revision`: no deletions of absent keys. */
function effectOf(
  log: StoreLog,
  { operations }: TxnInput,
  revision: Revision,
): readonly Operation[] {
  return operations.filter(
    (operation) => 'put' in operation || log.entryAt(operation.delete, revision - 1n) !== undefined,
  );
}

function isAmong(operation: Operation, changes: ReadonlyMap<string, Change>): boolean {
  const change = changes.get(keyOfOperation(operation));
  if (change === undefined) return false;
  if (!('put' in operation)) return change.kind === 'delete';
  return change.kind === 'put' && haveEqualBytes(operation.value, change.entry.value);
}

function isEndOfLease(log: StoreLog, change: Change, revision: Revision): boolean {
  return change.kind === 'delete' && log.entryAt(change.key, revision - 1n)?.lease !== undefined;
}

function keyOfOperation(operation: Operation): string {
  return 'put' in operation ? operation.put : operation.delete;
}

/** Names the calls that put the same value, to tell a doubled write from an invented one. */
function describeWriters(calls: readonly StoreCall[], change: Change): string {
  if (change.kind === 'delete') return '';
  const writers = calls.filter(
    ({ input }) =>
      input.kind === 'txn' &&
      input.operations.some((operation) => isAmong(operation, new Map([[keyOf(change), change]]))),
  );
  const texts = writers.map(({ client, result }) => {
    const { output } = result ?? {};
    const outcome =
      output?.kind === 'committed' ? `committed at revision ${output.revision}` : output?.kind;
    return `${client} (${outcome ?? 'outcome unknown'})`;
  });
  return texts.length === 0 ? '' : `; the value was written by ${texts.join(', ')}`;
}

function describeChange(change: Change): string {
  return change.kind === 'put' ? `puts ${change.entry.key}` : `deletes ${change.key}`;
}

function describeOperations(operations: readonly Operation[]): string {
  const texts = operations.map((operation) =>
    'put' in operation ? `put ${operation.put}` : `delete ${operation.delete}`,
  );
  return `the transaction [${texts.join(', ')}]`;
}

function describeCompare(log: StoreLog, { key, is }: Compare, revision: Revision): string {
  return `${key} was at ${log.entryAt(key, revision)?.modRevision ?? 'absent'}, not ${is}`;
}
