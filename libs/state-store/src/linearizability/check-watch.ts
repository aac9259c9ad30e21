import type { Change, ChangeBatch, Revision } from '../state-store.js';
import { haveEqualBytes, keyOf, type StoreLog } from './store-log.js';

/** What one watch delivered. */
export interface RecordedWatch {
  /** Name of the reader, for messages. */
  readonly client: string;
  readonly prefix: string;
  /** The watch delivers changes after this revision. */
  readonly after: Revision;
  readonly batches: readonly ChangeBatch[];
}

/**
 * Compares what a watch delivered with the log: every change under the prefix, in the order of the
 * revisions, without gaps and repetitions. A watch may end early.
 * @returns The violations, at most one: everything after the first is a consequence.
 */
export function checkWatch(log: StoreLog, watch: RecordedWatch): readonly string[] {
  const { client, prefix, after, batches } = watch;
  const expected = log.batches.flatMap(({ revision, changes }) => {
    const visible = changes.filter((change) => keyOf(change).startsWith(prefix));
    return revision > after && visible.length > 0 ? [{ revision, changes: visible }] : [];
  });
  let previous = after;
  for (const [index, batch] of batches.entries()) {
    const { revision } = batch;
    if (revision <= previous)
      return [`the watch of ${client} delivered revision ${revision} after revision ${previous}`];
    const next = expected[index];
    if (next === undefined)
      return [`the watch of ${client} delivered revision ${revision}, which the log does not have`];
    if (next.revision < revision)
      return [`the watch of ${client} left out revision ${next.revision}`];
    if (next.revision > revision || !haveEqualChanges(next.changes, batch.changes))
      return [
        `the watch of ${client} delivered other changes of revision ${revision} than the log`,
      ];
    previous = revision;
  }
  return [];
}

/** Checks that the revisions of a log grow, and that each change has the revision of its batch. */
export function checkLogOrder(log: StoreLog): readonly string[] {
  let previous = 0n;
  const problems: string[] = [];
  for (const { revision, changes } of log.batches) {
    if (revision <= previous)
      problems.push(`the log has revision ${revision} after revision ${previous}`);
    previous = revision;
    for (const change of changes) {
      const { modRevision } = change.kind === 'put' ? change.entry : change;
      if (modRevision !== revision)
        problems.push(
          `revision ${revision} contains a change of ${keyOf(change)} with revision ${modRevision}`,
        );
    }
  }
  return problems;
}

/** Compares the changes of one revision; their order within the revision does not matter. */
function haveEqualChanges(one: readonly Change[], other: readonly Change[]): boolean {
  if (one.length !== other.length) return false;
  const otherByKey = new Map(other.map((change) => [keyOf(change), change]));
  return one.every((change) => {
    const counterpart = otherByKey.get(keyOf(change));
    if (counterpart?.kind === 'put' && change.kind === 'put')
      return haveEqualBytes(counterpart.entry.value, change.entry.value);
    return counterpart?.kind === change.kind;
  });
}
