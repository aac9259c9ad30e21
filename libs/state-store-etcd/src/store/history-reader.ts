import type { Change, Revision } from '@cloudless/state-store';
import type { EtcdClient } from '../client/etcd-client.js';
import { BatchAssembler, type EntryCodec } from '../watch/batch-assembler.js';
import { WatchCompactedError, WatchStream } from '../watch/watch-stream.js';
import type { HistoricWrite } from './history-compactor.js';
import type { KeySpace, RevisionMap } from './key-space.js';

export interface HistoryReaderDeps {
  readonly client: EtcdClient;
  readonly keys: KeySpace;
  readonly revisions: RevisionMap;
  readonly codec: EntryCodec;
  /** Changes that stay in the history. */
  readonly historyLimit: number;
}

/**
 * Revisions that are read at most, in limits of the history. Each has at least one change, and
 * history is dropped beyond one and a quarter of the limit.
 */
const READ_LIMITS = 2;

/**
 * Reads the writes that etcd still retains, oldest first, up to a revision. A watch has the only
 * access to the history of etcd, which sends it at its own pace: about 10,000 revisions in a second.
 * @param last - A revision that changed the store, so that the watch delivers it.
 * @throws The errors of {@link WatchStream}.
 */
export async function* readHistory(
  deps: HistoryReaderDeps,
  last: Revision,
  signal: AbortSignal,
): AsyncGenerator<HistoricWrite> {
  const { revisions, historyLimit } = deps;
  const etcdLast = revisions.toEtcd(last);
  const oldest = etcdLast - BigInt(READ_LIMITS * historyLimit);
  const first = revisions.firstEtcdRevision;
  let start = oldest > first ? oldest : first;
  for (;;) {
    if (start > etcdLast) return;
    try {
      yield* readFrom(deps, start, last, signal);
      return;
    } catch (reason) {
      if (!(reason instanceof WatchCompactedError)) throw reason;
      start = reason.compactRevision + 1n;
    }
  }
}

async function* readFrom(
  { client, keys, codec }: HistoryReaderDeps,
  startRevision: bigint,
  last: Revision,
  signal: AbortSignal,
): AsyncGenerator<HistoricWrite> {
  const assembler = new BatchAssembler(codec);
  const stream = await WatchStream.open(client, { ...keys.toWatchRange(''), startRevision });
  const stop = (): void => stream.close();
  signal.addEventListener('abort', stop);
  try {
    for (;;) {
      signal.throwIfAborted();
      for (const { revision, changes } of assembler.add(await stream.next())) {
        if (revision > last) return;
        yield toHistoricWrite(revision, changes.map(toHistoricChange));
        if (revision === last) return;
      }
    }
  } finally {
    signal.removeEventListener('abort', stop);
    stream.close();
  }
}

function toHistoricChange(change: Change): { isDeletion: boolean; bytes: number } {
  if (change.kind === 'delete') return { isDeletion: true, bytes: 0 };
  const { key, value } = change.entry;
  return { isDeletion: false, bytes: key.length + value.byteLength };
}

/** Returns what the limits of the history count of one revision. */
export function toHistoricWrite(
  revision: Revision,
  changes: readonly { readonly isDeletion: boolean; readonly bytes: number }[],
): HistoricWrite {
  return {
    revision,
    changes: changes.length,
    bytes: changes.reduce((sum, { bytes }) => sum + bytes, 0),
    hasDeletions: changes.some(({ isDeletion }) => isDeletion),
  };
}
