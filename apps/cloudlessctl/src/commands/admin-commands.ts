import type { Command } from 'commander';
import { codeOfKind } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { verifySnapshot, type SnapshotSummary } from '@cloudless/state-store';
import { restoreLmdbStateStore } from '@cloudless/state-store-lmdb';
import { readChunks, writeBackup } from '../backup-file.js';
import type { CommandTree, Invocation } from '../command-tree.js';
import { CliFailure, exitCodeOf } from '../failure.js';
import type { Session } from '../session.js';
import { flagOption, operand, textOption } from './options.js';

/** Adds the subcommands of `admin`: backup, verify, restore and accept-restored-state. */
export function addAdminCommands(tree: CommandTree, parent: Command): void {
  tree
    .leaf(
      parent,
      'backup <file>',
      "write the coordinator's state at one revision to a file",
      backUp,
    )
    .option('--force', 'overwrite an existing file');
  tree.offlineLeaf(
    parent,
    'verify <file>',
    'check that a backup file is complete and unaltered',
    verify,
  );
  tree
    .offlineLeaf(
      parent,
      'restore <file>',
      'create a data directory for a coordinator from a backup',
      restore,
    )
    .requiredOption('--data-dir <dir>', 'directory to create; it must be empty if it exists');
  tree.leaf(
    parent,
    'accept-restored-state',
    'after an old state was restored: use this state, and stop replicas that it does not know',
    acceptRestoredState,
  );
}

async function acceptRestoredState({ session }: Invocation): Promise<void> {
  const { accepted, epoch, orderRevision } = await session.admin.acceptRestoredState(
    {},
    session.callOptions(),
  );
  if (session.structured) {
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

async function backUp(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const file = operand(invocation, 0, 'file');
  // The duration depends on the size of the state, so there is no time limit without --timeout.
  const options =
    session.settings.timeoutMs === undefined ? session.streamOptions() : session.callOptions();
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    for await (const { data } of session.admin.backup({}, options)) yield data;
  };
  const summary = await reported(() => writeBackup(file, chunks, flagOption(invocation, 'force')));
  await print(session, file, summary, `${file}: saved ${describe(summary)}`);
}

async function verify(invocation: Invocation): Promise<void> {
  const file = operand(invocation, 0, 'file');
  const summary = await reported(() => verifySnapshot(readChunks(file)), file);
  await print(invocation.session, file, summary, `${file}: valid backup of ${describe(summary)}`);
}

async function restore(invocation: Invocation): Promise<void> {
  const file = operand(invocation, 0, 'file');
  const directory = textOption(invocation, 'dataDir') ?? '';
  // Verify the whole backup first, so that nothing is created from a damaged one.
  await reported(() => verifySnapshot(readChunks(file)), file);
  const summary = await reported(() =>
    restoreLmdbStateStore({ directory, chunks: readChunks(file) }),
  );
  await print(
    invocation.session,
    file,
    summary,
    `${directory}: restored ${describe(summary)}\nstart a coordinator with: cloudless-coordinator --data-dir ${directory}`,
  );
}

function describe({ clusterId, revision, entries, bytes }: SnapshotSummary): string {
  return `revision ${revision} of cluster ${clusterId}, ${entries} ${entries === 1 ? 'entry' : 'entries'}, ${bytes} bytes`;
}

async function print(
  session: Session,
  file: string,
  summary: SnapshotSummary,
  text: string,
): Promise<void> {
  const { clusterId, schemaVersion, revision, entries, bytes, sha256 } = summary;
  if (session.structured) {
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

/**
 * Runs a local action and gives its errors the exit code that the same error of a coordinator has.
 */
async function reported<Result>(act: () => Promise<Result>, file?: string): Promise<Result> {
  try {
    return await act();
  } catch (reason) {
    if (!(reason instanceof CloudlessError)) throw reason;
    const about = file === undefined || reason.message.includes(file) ? '' : `${file}: `;
    throw new CliFailure(exitCodeOf(codeOfKind(reason.kind)), `${about}${reason.message}`, {
      cause: reason,
    });
  }
}
