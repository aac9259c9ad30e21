import type { Command } from 'commander';
import { Code, ConnectError } from '@connectrpc/connect';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { LocalSession } from '../../call/local-session.js';
import { withCallFailures } from '../../call/open-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { editContexts } from '../../config/contexts.js';
import { readIdentity } from '../../identity/stored-identity.js';
import type { StoredIdentity } from '../../identity/stored-identity.js';
import { hasFlag } from '../options.js';

export function addLogoutCommand(tree: CommandTree, parent: Command): void {
  tree
    .addLocalCommand(
      parent,
      'logout',
      'revoke the identity of the context and remove its files',
      logout,
      () => false,
    )
    .option('--local', 'only remove the files; the identity stays valid until its end');
}

async function logout(invocation: LocalInvocation): Promise<void> {
  const { session } = invocation;
  const { context, credentials, configPath } = session.settings;
  const { source } = credentials;
  if (context === undefined || source === undefined)
    throw new CliFailure(ExitCode.error, `not logged in; there is no identity in ${configPath}`);
  if (source.kind === 'identity') {
    const identity = await readDamaged(session, source.directory);
    if (identity !== undefined && !hasFlag(invocation, 'local'))
      await revokeIdentity(session, identity);
    await session.io.files.remove(source.directory);
    await removeKeys(session, context, configPath);
    return session.printStatus(
      `logged out of ${session.settings.server} (context ${context})${hasFlag(invocation, 'local') ? '; the identity was not revoked' : ''}`,
    );
  }
  if (source.kind === 'tokenText' || source.origin === '--token-file')
    throw createUsageFailure(
      `${source.origin} is used instead of the context ${context}; remove it to log out of the context`,
    );
  await session.io.files.remove(source.path);
  await removeKeys(session, context, configPath);
  await session.printStatus(
    `logged out of ${session.settings.server} (context ${context}); the token stays valid until its end or: cloudlessctl user token revoke`,
  );
}

/** A damaged file must not prevent its removal. */
async function readDamaged(
  { io }: LocalSession,
  directory: string,
): Promise<StoredIdentity | undefined> {
  try {
    return await readIdentity(io.files, directory);
  } catch {
    return undefined;
  }
}

/**
 * Revokes the credential. A credential that is refused already needs no revocation.
 * @throws {@link CliFailure} for other errors: the files stay, so that the command can be repeated.
 */
async function revokeIdentity(
  session: LocalSession,
  { credentialId, notAfterMs }: StoredIdentity,
): Promise<void> {
  if (session.nowMs > notAfterMs) return;
  try {
    await withCallFailures(session, (opened: CliSession) =>
      opened.users.revokeUserToken({ id: credentialId }, opened.getCallOptions()),
    );
  } catch (reason) {
    const cause = reason instanceof CliFailure ? reason.cause : undefined;
    if (
      cause instanceof ConnectError &&
      (cause.code === Code.Unauthenticated || cause.code === Code.NotFound)
    )
      return;
    if (!(reason instanceof CliFailure)) throw reason;
    throw new CliFailure(
      reason.exitCode,
      `${reason.message}\ncloudlessctl: nothing was removed; to remove only the files, use --local`,
      { cause: reason },
    );
  }
}

async function removeKeys(
  { io }: LocalSession,
  context: string,
  configPath: string,
): Promise<void> {
  await editContexts(io.files, configPath, (document) => {
    for (const key of ['identityDir', 'tokenFile']) document.deleteIn(['contexts', context, key]);
  });
}
