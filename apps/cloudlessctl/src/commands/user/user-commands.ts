import { Option } from 'commander';
import type { Command } from 'commander';
import { Role, UserSchema } from '@cloudless/api';
import type { User } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { withValues } from '../../completion/value-kinds.js';
import { createUsageFailure } from '../../call/failure.js';
import { toMessageJson } from '../../call/cli-session.js';
import { suggestSimilar } from '../../suggest.js';
import { formatGrant, formatGrants } from '../../views/user-view.js';
import { changeEach } from '../change-each.js';
import { addOutputOptions } from '../general/list-objects.js';
import { hasFlag, requireOperand } from '../options.js';
import { addUserTokenCommands } from './user-token-commands.js';
import { listUsers } from './list-users.js';

const ROLE_NAMES = ['viewer', 'operator', 'admin'] as const;

/** Adds the subcommands of `user`. */
export function addUserCommands(tree: CommandTree, parent: Command): void {
  tree.addCommand(parent, 'create <user-name...>', 'create users without roles', createUsers);
  addOutputOptions(
    tree
      .addCommand(parent, 'list [users...]', 'list users with their roles', (invocation) =>
        listUsers(invocation, invocation.operands),
      )
      .alias('ls'),
  );
  tree.addCommand(
    parent,
    'delete <users...>',
    'delete users with their roles, tokens and certificates',
    deleteUsers,
  );
  addRoleCommand(tree, parent, 'grant', 'give a role to a user', grantRole);
  addRoleCommand(tree, parent, 'revoke', 'take a role from a user', revokeRole);
  addUserTokenCommands(
    tree,
    tree.addGroup(parent, 'token', 'create, list and revoke tokens and certificates of users'),
  );
}

function addRoleCommand(
  tree: CommandTree,
  parent: Command,
  name: string,
  description: string,
  action: (invocation: Invocation) => Promise<void>,
): void {
  const command = tree.addCommand(
    parent,
    `${name} <user> <role>`,
    `${description}, in the namespace of --namespace or in the whole cluster`,
    action,
  );
  const role = command.registeredArguments[1];
  if (role !== undefined) withValues(role, ROLE_NAMES);
  command.addOption(new Option('--cluster', 'the role applies to the whole cluster'));
}

async function createUsers(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const created = await changeEach(session, [...new Set(invocation.operands)], {
    describe: describeUser,
    change: async (name) => {
      const user = await session.users.createUser({ name }, session.getCallOptions());
      await session.printStatus(
        `user ${user.name}: created without roles; next: cloudlessctl user grant ${user.name} viewer`,
      );
      return user;
    },
  });
  await printUsers(invocation, created.results);
  created.throwFailure();
}

async function deleteUsers(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const deleted = await changeEach(session, [...new Set(invocation.operands)], {
    describe: describeUser,
    change: async (name) => {
      await session.users.deleteUser({ name }, session.getCallOptions());
      await session.printStatus(`user ${name}: deleted`);
    },
  });
  deleted.throwFailure();
}

const describeUser = (name: string): string => `user ${name}`;

async function grantRole(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const grant = readGrant(invocation);
  const user = await withScope(session, grant, () =>
    session.users.grant(grant, session.getCallOptions()),
  );
  await printChange(invocation, user, `is now ${formatGrant(asRoleGrant(grant))}`);
}

async function revokeRole(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const grant = readGrant(invocation);
  const user = await withScope(session, grant, () =>
    session.users.revoke(grant, session.getCallOptions()),
  );
  const rest =
    user.grants.length === 0 ? 'no roles are left' : `left: ${formatGrants(user.grants)}`;
  await printChange(invocation, user, `is no longer ${formatGrant(asRoleGrant(grant))}; ${rest}`);
}

/**
 * Makes a call whose refusal names the role that is needed in the scope of a grant.
 * @throws {@link CliFailure} for an error of the call.
 */
async function withScope<Result>(
  { settings, nowMs }: CliSession,
  { namespace }: Pick<GrantFields, 'namespace'>,
  call: () => Promise<Result>,
): Promise<Result> {
  try {
    return await call();
  } catch (reason) {
    const { describeCallFailure, isCallError } = await import('../../call/call-failure.js');
    if (!isCallError(reason)) throw reason;
    throw describeCallFailure(reason, { ...settings, namespace }, nowMs);
  }
}

interface GrantFields {
  readonly user: string;
  readonly role: Role;
  /** Empty: the whole cluster. */
  readonly namespace: string;
}

/** @throws {@link CliFailure} with exit code 2 for an unknown role, or two scopes. */
function readGrant(invocation: Invocation): GrantFields {
  const { settings } = invocation.session;
  const user = requireOperand(invocation, 0, 'user');
  const text = requireOperand(invocation, 1, 'role');
  const roleName = ROLE_NAMES.find((name) => name === text.toLowerCase());
  if (roleName === undefined)
    throw createUsageFailure(
      `the role: expected one of ${ROLE_NAMES.join(', ')}, got ${JSON.stringify(text)}${suggestSimilar(text, ROLE_NAMES)}`,
    );
  const isClusterWide = hasFlag(invocation, 'cluster');
  if (isClusterWide && settings.namespaceGiven)
    throw createUsageFailure('give --cluster or --namespace, not both');
  return { user, role: ROLES[roleName], namespace: isClusterWide ? '' : settings.namespace };
}

const ROLES = { viewer: Role.VIEWER, operator: Role.OPERATOR, admin: Role.ADMIN } as const;

const asRoleGrant = ({ role, namespace }: GrantFields): Parameters<typeof formatGrant>[0] => ({
  $typeName: 'cloudless.api.RoleGrant',
  role,
  namespace,
});

async function printChange({ session }: Invocation, user: User, change: string): Promise<void> {
  await session.printStatus(`user ${user.name}: ${change}`);
  if (session.isStructured) await session.printValue(toMessageJson(UserSchema, user));
}

/** In JSON or YAML, prints one user as an object, several users as a list. */
async function printUsers(
  { session, operands }: Invocation,
  users: readonly User[],
): Promise<void> {
  if (!session.isStructured) return;
  const values = users.map((user) => toMessageJson(UserSchema, user));
  const [only] = values;
  await session.printValue(operands.length === 1 && only !== undefined ? only : { users: values });
}
