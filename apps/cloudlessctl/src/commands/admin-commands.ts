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

/** Adds the verbs of `admin`: what operators do on the coordinator and its state. */
export function addAdminCommands(tree: CommandTree, parent: Command): void {
  tree
    .leaf(
      parent,
      'backup <file>',
      "keep all of the coordinator's state, at one revision, in a file",
      backUp,
    )
    .option('--force', 'replace the file if there is one');
  tree.offlineLeaf(parent, 'verify <file>', 'read a backup and tell whether it is whole', verify);
  tree
    .offlineLeaf(
      parent,
      'restore <file>',
      'make a data directory of a backup, for a coordinator to be started on',
      restore,
    )
    .requiredOption('--data-dir <dir>', 'the new directory; must not exist or be empty');
  tree.leaf(
    parent,
    'accept-restored-state',
    'after the state went back in time: make it the truth again, and stop what it does not know',
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
      ? `restored state: accepted from epoch ${epoch} on; agents get orders again, and what the state does not know is stopped\n`
      : `restored state: there is none to accept, the state has not gone back in time (epoch ${epoch})\n`,
  );
}

async function backUp(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const file = operand(invocation, 0, 'file');
  // How long it takes depends on the size of the state: without --timeout it takes the time it
  // needs.
  const options =
    session.settings.timeoutMs === undefined ? session.streamOptions() : session.callOptions();
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    for await (const { data } of session.admin.backup({}, options)) yield data;
  };
  const summary = await reported(() => writeBackup(file, chunks, flagOption(invocation, 'force')));
  await print(session, file, summary, `${file}: holds ${describe(summary)}`);
}

async function verify(invocation: Invocation): Promise<void> {
  const file = operand(invocation, 0, 'file');
  const summary = await reported(() => verifySnapshot(readChunks(file)), file);
  await print(
    invocation.session,
    file,
    summary,
    `${file}: is whole and holds ${describe(summary)}`,
  );
}

async function restore(invocation: Invocation): Promise<void> {
  const file = operand(invocation, 0, 'file');
  const directory = textOption(invocation, 'dataDir') ?? '';
  // Read twice: so that nothing at all is made of a backup that is no good.
  await reported(() => verifySnapshot(readChunks(file)), file);
  const summary = await reported(() =>
    restoreLmdbStateStore({ directory, chunks: readChunks(file) }),
  );
  await print(
    invocation.session,
    file,
    summary,
    `${directory}: restored with ${describe(summary)}\nstart a coordinator on it: cloudless-coordinator --data-dir ${directory}`,
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

/** What failed on this machine gets the exit code of the same failure on a coordinator. */
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
