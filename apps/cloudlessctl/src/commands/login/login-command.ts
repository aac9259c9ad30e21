import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { CliSession } from '../../call/cli-session.js';
import { createUsageFailure } from '../../call/failure.js';
import type { LocalSession } from '../../call/local-session.js';
import { runWithSession } from '../../call/open-session.js';
import { checkServer } from '../../config/context.js';
import { editContexts, getConfigPath, readContexts } from '../../config/contexts.js';
import type { Context, Contexts } from '../../config/context.js';
import { firstServer, joinServers, splitServers } from '../../config/server-list.js';
import { resolvePath } from '../../config/settings.js';
import { createPendingKey, issueIdentity } from '../../identity/issue-identity.js';
import { toTokenAccess } from '../../identity/load-access.js';
import { readIdentity, writeIdentity } from '../../identity/stored-identity.js';
import type { StoredIdentity } from '../../identity/stored-identity.js';
import type { UserToken } from '../../identity/token-text.js';
import { readLoginToken } from '../../identity/read-login-token.js';
import type { ServerAccess } from '../../io/io.js';
import { getTextOption, hasFlag } from '../options.js';
import { printIdentity } from './who-am-i-command.js';

export function addLoginCommand(tree: CommandTree, parent: Command): void {
  tree
    .addOfflineCommand(
      parent,
      'login [server]',
      'log in with a token, and store an identity that renews itself',
      login,
    )
    .option(
      '--name <context-name>',
      'name of the context, also as --context (default: the host of the server)',
    )
    .option('--description <text>', 'name of this machine in lists (default: the host name)')
    .option('--keep-token', 'store the token instead of a client certificate');
}

/** The context that a login creates or changes. */
interface LoginTarget {
  readonly server: string;
  readonly name: string;
  readonly configPath: string;
  /** The user whose identity the context had before; undefined when no identity can be read. */
  readonly userBefore: string | undefined;
}

/** The access that a login stores, and the user of the context from then on. */
interface Login {
  readonly access: ServerAccess;
  /** Name of the user, such as `user/ada`. */
  readonly user: string;
}

async function login(invocation: LocalInvocation): Promise<void> {
  const { session } = invocation;
  const target = await readTarget(invocation);
  const token = await readLoginToken(session.io, getTextOption(invocation, 'tokenFile'));
  const { caFile } = session.settings.credentials;
  const access = await toTokenAccess(session.io, token, caFile);
  const loggedIn = hasFlag(invocation, 'keepToken')
    ? await keepToken(session, target, token, access)
    : await storeIdentity(invocation, target, access);
  await session.printNotice(
    `logged in to ${target.server}; the current context is ${target.name} in ${target.configPath}`,
  );
  const { userBefore } = target;
  if (userBefore !== undefined && userBefore !== loggedIn.user)
    await session.printNotice(
      `the context ${target.name} now has the identity of ${loggedIn.user}; before: ${userBefore}; to keep a context for each user, log in with --name`,
    );
  await withSession(session, target, loggedIn.access, (opened) => printIdentity(opened));
}

/**
 * Returns the given addresses, followed by those of the other coordinators of the cluster. A login
 * does not fail because a coordinator does not name them.
 */
async function findServers(opened: CliSession, { server }: LoginTarget): Promise<string> {
  const given = splitServers(server);
  const others = await opened.client.getServerInfo({}, opened.getCallOptions()).then(
    ({ coordinators }) => coordinators.map(({ address }) => address.replace(/\/$/, '')),
    () => [],
  );
  const usable = others.filter(
    (address) => address.startsWith('https:') && checkServer(address) === undefined,
  );
  return joinServers([...given, ...usable]);
}

/** Creates a key on this machine, and stores the certificate that the coordinator issues. */
async function storeIdentity(
  invocation: LocalInvocation,
  target: LoginTarget,
  access: ServerAccess,
): Promise<Login> {
  const { session } = invocation;
  const description = getTextOption(invocation, 'description') ?? session.io.hostName;
  const key = await createPendingKey();
  const [identity, server] = await withSession(session, target, access, async (opened) => [
    await issueIdentity(opened.users, target.server, key, description, opened.getCallOptions()),
    await findServers(opened, target),
  ]);
  const identityDir = toIdentityDir(target);
  const directory = resolvePath(target.configPath, identityDir);
  const { files } = session.io;
  await files.remove(`${directory}/token`);
  await files.remove(`${directory}/pending-key.json`);
  await writeIdentity(files, directory, identity);
  await writeContext(session, { ...target, server }, { identityDir });
  return { access: toAccess(identity), user: identity.principal };
}

const toAccess = (identity: StoredIdentity): ServerAccess => ({
  kind: 'certificate',
  getIdentity: () => identity,
});

/** Stores the token after a call that shows that the coordinator accepts the token. */
async function keepToken(
  session: LocalSession,
  target: LoginTarget,
  token: UserToken,
  access: ServerAccess,
): Promise<Login> {
  const [{ principal }, server] = await withSession(session, target, access, async (opened) => [
    await opened.users.whoAmI({}, opened.getCallOptions()),
    await findServers(opened, target),
  ]);
  const identityDir = toIdentityDir(target);
  const directory = resolvePath(target.configPath, identityDir);
  await session.io.files.remove(directory);
  await session.io.files.replaceSecret(`${directory}/token`, `${token.text}\n`);
  const { caFile } = session.settings.credentials;
  await writeContext(
    session,
    { ...target, server },
    {
      tokenFile: `${identityDir}/token`,
      ...(caFile === undefined ? {} : { caFile: resolve(caFile) }),
    },
  );
  return { access, user: principal };
}

/** Runs an action with a session that uses the context of the login and the given access. */
function withSession<Result>(
  { io, settings, style }: LocalSession,
  { server, name }: LoginTarget,
  access: ServerAccess,
  action: (session: CliSession) => Promise<Result>,
): Promise<Result> {
  const opened = new CliSession(io, { ...settings, server, context: name }, style, access);
  return runWithSession(opened, action);
}

/**
 * Returns the directory of the identity of a context, relative to the directory of the configuration
 * file. Each configuration file has directories of its own, so that a login with one file does not
 * change who another file is: `identities/CONTEXT` for `config.yaml`, and `FILE.identities/CONTEXT`
 * for any other name.
 */
function toIdentityDir({ configPath, name }: LoginTarget): string {
  const file = configPath.slice(configPath.lastIndexOf('/') + 1);
  return `${file === 'config.yaml' ? '' : `${file}.`}identities/${name}`;
}

/** Returns the user of the identity that a context has; undefined without a readable identity. */
async function readUser(
  { io }: LocalSession,
  configPath: string,
  context: Context | undefined,
): Promise<string | undefined> {
  if (context?.identityDir === undefined) return undefined;
  try {
    const identity = await readIdentity(io.files, resolvePath(configPath, context.identityDir));
    return identity?.principal;
  } catch {
    return undefined; // The login replaces a damaged file.
  }
}

/** Writes the context and makes it the current one. The namespace of the context stays. */
async function writeContext(
  session: LocalSession,
  { configPath, name, server }: LoginTarget,
  credential: Pick<Context, 'identityDir' | 'tokenFile' | 'caFile'>,
): Promise<void> {
  const { settings } = session;
  await editContexts(session.io.files, configPath, (document) => {
    document.set('current', name);
    document.setIn(['contexts', name, 'server'], server);
    if (settings.namespaceGiven)
      document.setIn(['contexts', name, 'namespace'], settings.namespace);
    for (const key of ['identityDir', 'tokenFile', 'caFile'])
      document.deleteIn(['contexts', name, key]);
    for (const [key, value] of Object.entries(credential))
      document.setIn(['contexts', name, key], value);
  });
}

/**
 * Returns the server and the name of the context.
 * @throws {@link CliFailure} with exit code 2 for an invalid server, and for a name whose context has
 *   another server.
 */
async function readTarget(invocation: LocalInvocation): Promise<LoginTarget> {
  const { session, operands } = invocation;
  const { settings, io } = session;
  const server = joinServers(splitServers(operands[0] ?? settings.server));
  const problem = checkServer(server);
  if (problem !== undefined) throw createUsageFailure(`the server: ${problem}`);
  if (operands[0] !== undefined && settings.serverGiven)
    throw createUsageFailure('give the server as an operand or with --server, not both');
  if (!server.startsWith('https:'))
    throw createUsageFailure(
      `${server}: only a cluster with TLS has users; its address begins with https://. Without TLS use: cloudlessctl context set NAME --server ${server}`,
    );
  const configPath = getConfigPath(io.env);
  const known = await readContexts(io.files, configPath);
  const given = readContextName(invocation);
  const name = given?.name ?? findContextName(known, server) ?? toContextName(server);
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name))
    throw createUsageFailure(
      `${given?.option ?? '--name'}: expected letters, digits, dots, hyphens and underscores, got ${JSON.stringify(name)}`,
    );
  const context = known.contexts.get(name);
  const present = context?.server;
  if (present !== undefined && !sharesServer(present, server))
    throw createUsageFailure(
      `the context ${name} has the server ${present}; choose another name with --name, or change the context first: cloudlessctl context set ${name} --server ${server}`,
    );
  return { server, name, configPath, userBefore: await readUser(session, configPath, context) };
}

/**
 * Returns the name of the context that the command line gives, and the option.
 * @throws {@link CliFailure} with exit code 2 when `--name` and `--context` differ.
 */
function readContextName(
  invocation: LocalInvocation,
): { readonly name: string; readonly option: '--name' | '--context' } | undefined {
  const { contextGiven, context } = invocation.session.settings;
  const name = getTextOption(invocation, 'name');
  const fromContext = contextGiven ? context : undefined;
  if (name !== undefined && fromContext !== undefined && name !== fromContext)
    throw createUsageFailure(
      `--name ${name} and --context ${fromContext} name two contexts; give one of the two`,
    );
  if (name !== undefined) return { name, option: '--name' };
  return fromContext === undefined ? undefined : { name: fromContext, option: '--context' };
}

/** Returns the context of a server, the current context first; undefined when there is none. */
function findContextName({ current, contexts }: Contexts, server: string): string | undefined {
  const names = [...contexts]
    .filter(([, context]) => context.server !== undefined && sharesServer(context.server, server))
    .map(([name]) => name);
  return names.find((name) => name === current) ?? names[0];
}

/** Returns true when two settings have an address in common, so that they name one cluster. */
function sharesServer(one: string, other: string): boolean {
  const addresses = splitServers(other);
  return splitServers(one).some((address) => addresses.includes(address));
}

/** Returns the host of a server as the name of a context: `cluster.example`, `10.0.0.1`. */
function toContextName(server: string): string {
  return new URL(firstServer(server)).hostname
    .replaceAll(/[^A-Za-z0-9._-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '');
}
