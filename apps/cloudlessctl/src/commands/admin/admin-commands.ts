import { Option, type Command } from 'commander';
import { verifySnapshot, type SnapshotSummary } from '@cloudless/state-store';
import type { CommandTree, Invocation, LocalInvocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { LocalSession } from '../../call/local-session.js';
import { addOutputOptions } from '../general/list-objects.js';
import { hasFlag, requireOperand, getTextOption } from '../options.js';
import { withValues } from '../../completion/value-kinds.js';
import { readChunks, writeBackup } from './backup-file.js';
import { addEtcdFlags, readEtcdFlags } from './etcd-flags.js';
import { withExitCode } from './with-exit-code.js';
import { addAuthorityCommands } from './certificate-authority.js';
import { addInstallUnitCommand } from './install-unit.js';

/** Adds the subcommands of `admin`. */
export function addAdminCommands(tree: CommandTree, parent: Command): void {
  tree
    .addCommand(
      parent,
      'backup <file>',
      "write the coordinator's state at one revision to a file",
      runBackup,
    )
    .option('--force', 'overwrite an existing file');
  tree
    .addCommand(
      parent,
      'snapshot <file>',
      'write nodes, workloads and replicas to a file for simulate, without secrets',
      async (invocation) => (await import('./save-snapshot.js')).saveSnapshot(invocation),
    )
    .option('--force', 'overwrite an existing file');
  tree.addOfflineCommand(
    parent,
    'verify <file>',
    'check that a backup file is complete and unaltered',
    verifyBackup,
  );
  addEtcdFlags(
    tree
      .addOfflineCommand(
        parent,
        'restore <file>',
        'create a data directory, or a store in etcd, from a backup',
        restoreBackup,
      )
      .option('--data-dir <dir>', 'directory to create; it must be empty if it exists'),
  );
  addEtcdFlags(
    tree
      .addOfflineCommand(
        parent,
        'migrate <dir>',
        'copy the state of stopped coordinators between a data directory and etcd',
        runMigration,
      )
      .addOption(
        withValues(
          new Option('--to <engine>', 'etcd, or lmdb: the engine to copy to').makeOptionMandatory(),
          ['etcd', 'lmdb'],
        ),
      ),
  );
  tree.addCommand(
    parent,
    'accept-restored-state',
    'after an old state was restored: use this state, and stop replicas that it does not know',
    acceptRestoredState,
  );
  addOutputOptions(
    tree.addCommand(
      parent,
      'coordinators',
      'list the coordinators that run, and which of them leads',
      async (invocation) => (await import('./list-coordinators.js')).listCoordinators(invocation),
    ),
  );
  tree.addCommand(
    parent,
    'step-down',
    'hand the leadership over to another coordinator, for example before its machine is serviced',
    stepDown,
  );
  addAuthorityCommands(tree, parent);
  addInstallUnitCommand(tree, parent);
}

async function acceptRestoredState({ session }: Invocation): Promise<void> {
  const { accepted, epoch, orderRevision } = await session.admin.acceptRestoredState(
    {},
    session.getCallOptions(),
  );
  if (session.isStructured) {
    return session.printValue({
      accepted,
      epoch: String(epoch),
      orderRevision: String(orderRevision),
    });
  }
  await session.print(
    accepted
      ? `restored state: accepted in epoch ${epoch}; agents receive orders again, and replicas that the state does not know are stopped\n`
      : `restored state: nothing to accept, no agent has seen a newer state (epoch ${epoch})\n`,
  );
}

async function stepDown({ session }: Invocation): Promise<void> {
  // Names the leadership to end: a call that arrives late must not depose the next leader.
  const { leader } = await session.client.getServerInfo({}, session.getCallOptions());
  const { leaderId, leaderAddress, epoch } = await session.admin.stepDown(
    leader === undefined ? {} : { expectedEpoch: leader.epoch },
    session.getCallOptions(),
  );
  if (session.isStructured)
    return session.printValue({ leaderId, leaderAddress, epoch: String(epoch) });
  await session.print(
    `leadership: handed over to coordinator ${leaderId} at ${leaderAddress} (epoch ${epoch})\n`,
  );
}

async function runBackup(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const file = requireOperand(invocation, 0, 'file');
  // The duration depends on the size of the state, so there is no time limit without --timeout.
  const options =
    session.settings.timeoutMs === undefined
      ? session.getStreamOptions()
      : session.getCallOptions();
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    for await (const { data } of session.admin.backup({}, options)) yield data;
  };
  const summary = await withExitCode(() => writeBackup(file, chunks, hasFlag(invocation, 'force')));
  await printSummary(session, file, summary, `${file}: saved ${describeBackup(summary)}`);
}

async function verifyBackup(invocation: LocalInvocation): Promise<void> {
  const file = requireOperand(invocation, 0, 'file');
  const summary = await withExitCode(() => verifySnapshot(readChunks(file)), file);
  await printSummary(
    invocation.session,
    file,
    summary,
    `${file}: valid backup of ${describeBackup(summary)}`,
  );
}

const ACCEPTANCE_HINT =
  'nothing is started, stopped or changed until an operator accepts this state; when the nodes ' +
  'that still exist are connected, run: cloudlessctl admin accept-restored-state';

async function restoreBackup(invocation: LocalInvocation): Promise<void> {
  const file = requireOperand(invocation, 0, 'file');
  const directory = getTextOption(invocation, 'dataDir');
  const isToEtcd = getTextOption(invocation, 'etcdEndpoints') !== undefined;
  if (isToEtcd === (directory !== undefined))
    throw createUsageFailure('name either --data-dir or --etcd-endpoints');
  const etcd = isToEtcd ? await readEtcdFlags(invocation) : undefined;
  // Verifies the whole backup first, so that a damaged backup creates nothing.
  await withExitCode(() => verifySnapshot(readChunks(file)), file);
  const { markRestored: changeEntry } = await import('./restore-mark.js');
  if (directory !== undefined) {
    // Loaded on use, because the library contains native code.
    const { restoreLmdbStateStore } = await import('@cloudless/state-store-lmdb');
    const summary = await withExitCode(() =>
      restoreLmdbStateStore({ directory, chunks: readChunks(file), changeEntry }).catch(
        describeMissingPackage,
      ),
    );
    return printSummary(
      invocation.session,
      file,
      summary,
      `${directory}: restored ${describeBackup(summary)}\nstart a coordinator with: cloudless-coordinator --data-dir ${directory}\n${ACCEPTANCE_HINT}`,
    );
  }
  if (etcd === undefined) return;
  const { restoreEtcdStateStore } = await import('@cloudless/state-store-etcd');
  const summary = await withExitCode(() =>
    restoreEtcdStateStore({ ...etcd, openChunks: () => readChunks(file), changeEntry }),
  );
  await printSummary(
    invocation.session,
    file,
    summary,
    `etcd ${etcd.prefix}: restored ${describeBackup(summary)}\nstart coordinators with: cloudless-coordinator --state etcd\n${ACCEPTANCE_HINT}`,
  );
}

async function runMigration(invocation: LocalInvocation): Promise<void> {
  const { session } = invocation;
  const engine = getTextOption(invocation, 'to');
  if (engine !== 'etcd' && engine !== 'lmdb') throw createUsageFailure('--to must be etcd or lmdb');
  const directory = requireOperand(invocation, 0, 'dir');
  const options = await readEtcdFlags(invocation);
  const { etcdSide, lmdbSide, migrate } = await import('./migrate.js').catch(
    describeMissingPackage,
  );
  const [lmdb, etcd] = [lmdbSide(directory), etcdSide(options)];
  const { clusterId, entries, sha256 } = await withExitCode(() =>
    (engine === 'etcd' ? migrate(lmdb, etcd) : migrate(etcd, lmdb)).catch(describeMissingPackage),
  );
  if (session.isStructured) return session.printValue({ to: engine, clusterId, entries, sha256 });
  const target = engine === 'etcd' ? `etcd ${options.prefix}` : directory;
  await session.print(
    `${target}: copied cluster ${clusterId}, ${entries} ${entries === 1 ? 'entry' : 'entries'}, SHA-256 ${sha256} on both sides\nstart coordinators with: cloudless-coordinator ${engine === 'etcd' ? '--state etcd' : `--data-dir ${directory}`}\n`,
  );
}

/**
 * Throws the error; for a missing LMDB package, or one without a binary for this machine, a message
 * that says where the command works.
 */
function describeMissingPackage(reason: unknown): never {
  if (!(reason instanceof Error)) throw reason;
  if (/^Cannot find package 'lmdb'/.test(reason.message))
    throw new CliFailure(
      ExitCode.error,
      'this command needs the package lmdb, which is not installed; install cloudlessctl as an npm package (npm install --global cloudlessctl-VERSION.tgz), or run the command in a checkout',
      { cause: reason },
    );
  if (reason.message.startsWith('No native build was found'))
    throw new CliFailure(
      ExitCode.error,
      `this command needs the package lmdb, and this cloudlessctl was packed without its binary for ${process.platform}-${process.arch}; run the command on the machine of the coordinator`,
      { cause: reason },
    );
  throw reason;
}

function describeBackup({ clusterId, revision, entries, bytes }: SnapshotSummary): string {
  return `revision ${revision} of cluster ${clusterId}, ${entries} ${entries === 1 ? 'entry' : 'entries'}, ${bytes} bytes`;
}

/** Prints the summary of a backup as JSON or YAML, or else `text`. */
async function printSummary(
  session: LocalSession,
  file: string,
  summary: SnapshotSummary,
  text: string,
): Promise<void> {
  const { clusterId, schemaVersion, revision, entries, bytes, sha256 } = summary;
  if (session.isStructured) {
    return session.printValue({
      file,
      clusterId,
      schemaVersion,
      revision: String(revision),
      entries,
      bytes,
      sha256,
    });
  }
  await session.print(`${text}\n`);
}
