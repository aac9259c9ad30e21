import { UserCredentialSchema, UserSchema } from '@cloudless/api';
import type { User, UserCredential } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { suggestSimilar } from '../../suggest.js';
import { formatCredentialTable, formatUserTable } from '../../views/user-view.js';
import { printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { listAllPages } from '../page.js';

/** How users are listed. */
export const USER_KIND: ObjectKind<User> = {
  plural: 'users',
  fields: UserSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (user) => toMessageJson(UserSchema, user),
  formatTable: (users, { nowMs, style }) => formatUserTable(users, nowMs, style),
};

/** How the credentials of a user are listed. */
const CREDENTIAL_KIND: ObjectKind<UserCredential> = {
  plural: 'credentials',
  fields: UserCredentialSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (credential) => toMessageJson(UserCredentialSchema, credential),
  formatTable: (credentials, { nowMs, style, settings }) =>
    formatCredentialTable(credentials, nowMs, style, settings.output === 'wide'),
};

/**
 * Lists users.
 * @param names - Names of users; empty: all.
 * @throws {@link CliFailure} with exit code 3 when a named user does not exist.
 */
export async function listUsers(invocation: Invocation, names: readonly string[]): Promise<void> {
  const { session } = invocation;
  const users = await listAllUsers(session);
  const shown = names.map((name) => {
    const user = users.find((candidate) => candidate.name === name);
    if (user !== undefined) return user;
    const hint = suggestSimilar(
      name,
      users.map((candidate) => candidate.name),
    );
    throw new CliFailure(ExitCode.notFound, `user ${name} does not exist${hint}`);
  });
  await printObjects(
    invocation,
    USER_KIND,
    names.length === 0 ? users : shown,
    'no users; create one with: cloudlessctl user create NAME',
    { single: names.length === 1 },
  );
}

export function listAllUsers(session: CliSession): Promise<readonly User[]> {
  return listAllPages(
    (page) => session.users.listUsers(page, session.getCallOptions()),
    ({ users }) => users,
  );
}

/** Lists the tokens and certificates of a user. The operand names the user; default: the caller. */
export async function listCredentials(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const [user = ''] = operands;
  const credentials = await listAllPages(
    (page) => session.users.listUserTokens({ ...page, user }, session.getCallOptions()),
    (page) => page.credentials,
  );
  const owner = user === '' ? '' : ` of user ${user}`;
  await printObjects(invocation, CREDENTIAL_KIND, credentials, `no tokens or certificates${owner}`);
}
