import type { Command } from 'commander';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { UserCredentialSchema } from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatStyledTime } from '../../output/style.js';
import { formatCredentialKind } from '../../views/user-view.js';
import { changeEach } from '../change-each.js';
import { addOutputOptions } from '../general/list-objects.js';
import { addLifetimeOption, readLifetime } from '../lifetime-option.js';
import { getTextOption, requireOperands } from '../options.js';
import { addSecretOptions, createAndPrintSecret } from '../print-secret.js';
import { listCredentials } from './list-users.js';

/** Adds the subcommands of `user token`. */
export function addUserTokenCommands(tree: CommandTree, parent: Command): void {
  addSecretOptions(
    addLifetimeOption(
      tree.addCommand(
        parent,
        'create [user]',
        'create a token for a user (default: yourself); the text is shown once',
        createToken,
      ),
      'time until the token expires, for example 30d (default: 90d)',
    ).option('--description <text>', 'what the token is for'),
  );
  addOutputOptions(
    tree
      .addCommand(
        parent,
        'list [user]',
        'list tokens and certificates of a user (default: yourself)',
        listCredentials,
      )
      .alias('ls'),
  );
  tree
    .addCommand(
      parent,
      'revoke <credentials...>',
      'revoke tokens or certificates; their connections end within 5s',
      revokeTokens,
    )
    .option('--user <user>', 'owner of the tokens (default: yourself)');
}

async function createToken(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const given = readLifetime(invocation);
  const lifetime = given === undefined ? undefined : durationFromMs(given.ms);
  const request = {
    user: operands[0] ?? '',
    description: getTextOption(invocation, 'description') ?? '',
    ...definedFields({ lifetime }),
  };
  await createAndPrintSecret(invocation, async () => {
    const options = session.getCallOptions();
    const { credential, text } = await session.users.createUserToken(request, options);
    return {
      text,
      json: credential === undefined ? {} : toMessageJson(UserCredentialSchema, credential),
      summary: `token ${credential?.id ?? ''} of user ${credential?.user ?? ''}: expires ${formatStyledTime(credential?.expiresAt, session.style)}`,
      next: (file) => `cloudlessctl login ${session.settings.server} --token-file ${file}`,
    };
  });
}

async function revokeTokens(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  requireOperands(invocation, 'credentials');
  const user = getTextOption(invocation, 'user') ?? '';
  const revoked = await changeEach(session, [...new Set(invocation.operands)], {
    describe: (id) => `token ${id}`,
    change: async (id) => {
      const credential = await session.users.revokeUserToken(
        { user, id },
        session.getCallOptions(),
      );
      await session.printStatus(
        `${formatCredentialKind(credential.kind)} ${id} of user ${credential.user}: revoked`,
      );
      return credential;
    },
  });
  if (session.isStructured) {
    const credentials = revoked.results.map((credential) =>
      toMessageJson(UserCredentialSchema, credential),
    );
    const [only] = credentials;
    await session.printValue(
      invocation.operands.length === 1 && only !== undefined ? only : { credentials },
    );
  }
  revoked.throwFailure();
}
