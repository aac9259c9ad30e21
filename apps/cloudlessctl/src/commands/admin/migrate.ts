import { stat } from 'node:fs/promises';
import { systemClock } from '@cloudless/app-kit';
import { CloudlessError } from '@cloudless/base';
import { readClusterLayout } from '@cloudless/cluster-state';
import {
  digestContent,
  exportSnapshot,
  type ContentDigest,
  type StateStore,
} from '@cloudless/state-store';
import type { EtcdOptions } from './etcd-flags.js';

/** A store of one of both engines. */
export interface MigrationSide {
  /** Opens the store, which must exist. */
  readonly open: () => Promise<StateStore>;
  /** Creates the store from a snapshot. */
  readonly restore: (openChunks: () => AsyncIterable<Uint8Array>) => Promise<unknown>;
}

/** The result of a migration. */
export interface Migration extends ContentDigest {
  readonly clusterId: string;
}

/** Returns the store in a data directory. */
export function lmdbSide(directory: string): MigrationSide {
  return {
    open: async () => {
      await requireDirectory(directory);
      const { openLmdbStateStore } = await import('@cloudless/state-store-lmdb');
      return openLmdbStateStore({ directory, clock: systemClock });
    },
    restore: async (openChunks) => {
      const { restoreLmdbStateStore } = await import('@cloudless/state-store-lmdb');
      return restoreLmdbStateStore({ directory, chunks: openChunks() });
    },
  };
}

/** Returns the store under a prefix of etcd. */
export function etcdSide(options: EtcdOptions): MigrationSide {
  return {
    open: async () => {
      const { openEtcdStateStore } = await import('@cloudless/state-store-etcd');
      return openEtcdStateStore({ ...options, mustExist: true });
    },
    restore: async (openChunks) => {
      const { restoreEtcdStateStore } = await import('@cloudless/state-store-etcd');
      return restoreEtcdStateStore({ ...options, openChunks });
    },
  };
}

/**
 * Copies a store that no coordinator uses to the other engine, and compares number and checksum of
 * the entries of both. Does not change the source.
 * @throws kind `precondition` when a coordinator uses the source, the source has no cluster or a
 *   layout of another version, the target is in use, or source and target differ afterwards;
 *   `unavailable` when another process has the data directory open.
 */
export async function migrate(from: MigrationSide, to: MigrationSide): Promise<Migration> {
  const source = await from.open();
  try {
    await requireUnused(source);
    const layout = await readClusterLayout(source);
    if (layout === undefined)
      throw new CloudlessError('precondition', 'the source has no state of a cluster');
    const revision = await source.revision();
    const expected = await digestContent(source);
    await to.restore(() => exportSnapshot(source, layout));
    if ((await source.revision()) !== revision)
      throw new CloudlessError(
        'precondition',
        'the source was changed during the migration; stop all coordinators, delete the target and migrate again',
      );
    const found = await digestTarget(to);
    if (found.entries !== expected.entries || found.sha256 !== expected.sha256)
      throw new CloudlessError(
        'precondition',
        `the target differs from the source: ${found.entries} of ${expected.entries} entries, SHA-256 ${found.sha256} instead of ${expected.sha256}; delete the target and migrate again`,
      );
    return { ...expected, clusterId: layout.clusterId };
  } finally {
    await source.close();
  }
}

async function digestTarget(side: MigrationSide): Promise<ContentDigest> {
  const target = await side.open();
  try {
    return await digestContent(target);
  } finally {
    await target.close();
  }
}

/** Coordinators hold records on leases, which end 10 s after their process. */
async function requireUnused(source: StateStore): Promise<void> {
  for (const prefix of ['/leaderlease/', '/coordinator/']) {
    const { entries } = await source.range({ prefix });
    const held = entries.find(({ lease }) => lease !== undefined);
    if (held === undefined) continue;
    throw new CloudlessError(
      'precondition',
      `a coordinator uses the source (${held.key}); stop all coordinators, wait 10 s and migrate again`,
    );
  }
}

async function requireDirectory(directory: string): Promise<void> {
  const isDirectory = await stat(directory).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isDirectory)
    throw new CloudlessError('notFound', `${directory} is not a data directory of a coordinator`);
}
