import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { getConfigPath, editContexts, readContexts } from '../../config/contexts.js';
import { DEFAULT_SERVER, resolvePath } from '../../config/settings.js';
import { readIdentity } from '../../identity/stored-identity.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { LocalSession } from '../../call/local-session.js';
import { formatTable } from '../../output/table.js';
import { suggestSimilar } from '../../suggest.js';
import { describeLoginEnd } from '../../views/expiry.js';
import { getTextOption, requireOperand } from '../options.js';

/** Adds the subcommands of `context`. They only read and write the configuration file. */
export function addContextCommands(tree: CommandTree, parent: Command): void {
  tree.addOfflineCommand(parent, 'list', 'list contexts', listContexts).alias('ls');
  tree.addOfflineCommand(
    parent,
    'show',
    'show the context, server and namespace in use',
    showContext,
  );
  tree.addOfflineCommand(parent, 'use <context>', 'set the current context', useContext);
  tree.addOfflineCommand(
    parent,
    'set <context>',
    'create or change a context with --server, --namespace, --token-file and --ca-file',
    setContext,
  );
}

async function listContexts({ session }: LocalInvocation): Promise<void> {
  const { current, contexts, path } = await readContexts(
    session.io.files,
    getConfigPath(session.io.env),
  );
  const rows = await Promise.all(
    [...contexts].map(async ([name, context]) => ({
      name,
      current: name === current,
      ...context,
      ...(await describeLogin(session, context.identityDir, context.tokenFile, path)),
    })),
  );
  if (session.isStructured) return session.printValue({ contexts: rows });
  if (rows.length === 0)
    return session.printNotice(
      `no contexts in ${path}; create one with: cloudlessctl login https://HOST:8080 or cloudlessctl context set <name> --server <url>`,
    );
  await session.print(
    formatTable(
      ['CURRENT', 'NAME', 'SERVER', 'NAMESPACE', 'USER', 'LOGIN'],
      rows.map(({ name, current: isCurrent, server, namespace, user, login }) => [
        isCurrent ? '*' : ' ',
        name,
        server ?? DEFAULT_SERVER,
        namespace ?? 'default',
        user ?? '',
        login ?? '',
      ]),
    ),
  );
}

/** The login of a context, as far as the files of this machine tell. */
interface Login {
  /** Name of the user, such as `user/ada`. */
  readonly user?: string;
  /** End of the login: `expires in 6d unless used, in 12d at the latest`. */
  readonly login?: string;
  /** End of the login in RFC 3339. */
  readonly loginExpiresAt?: string;
}

async function describeLogin(
  { io, nowMs }: LocalSession,
  identityDir: string | undefined,
  tokenFile: string | undefined,
  configPath: string,
): Promise<Login> {
  if (tokenFile !== undefined) return { login: 'token' };
  if (identityDir === undefined) return {};
  try {
    const directory = resolvePath(configPath, identityDir);
    const identity = await readIdentity(io.files, directory);
    if (identity === undefined) return { login: 'logged out' };
    const { principal, notAfterMs, loginExpiresAtMs } = identity;
    const endMs = nowMs > notAfterMs ? notAfterMs : loginExpiresAtMs;
    return {
      user: principal,
      login: describeLoginEnd(notAfterMs, loginExpiresAtMs, nowMs),
      loginExpiresAt: new Date(endMs).toISOString(),
    };
  } catch (reason) {
    return { login: reason instanceof Error ? reason.message : String(reason) };
  }
}

async function showContext({ session }: LocalInvocation): Promise<void> {
  const { server, namespace, context, configPath, credentials } = session.settings;
  const { source, caFile } = credentials;
  const login = await describeLogin(
    session,
    source?.kind === 'identity' ? source.directory : undefined,
    source?.kind === 'tokenFile' ? source.path : undefined,
    configPath,
  );
  if (session.isStructured)
    return session.printValue({
      server,
      namespace,
      context: context ?? null,
      config: configPath,
      ...login,
    });
  const token =
    source === undefined || source.kind === 'identity'
      ? ''
      : `token of ${source.kind === 'tokenFile' ? source.path : source.origin}`;
  const lines = [
    ['context', context ?? '(none)'],
    ['server', server],
    ['namespace', namespace],
    ['config', configPath],
    ['user', login.user ?? ''],
    ['login', token === '' ? (login.login ?? '') : token],
    ['ca file', caFile ?? ''],
  ].filter(([, value]) => value !== '');
  await session.print(
    lines.map(([name = '', value = '']) => `${`${name}:`.padEnd(10)} ${value}\n`).join(''),
  );
}

async function useContext(invocation: LocalInvocation): Promise<void> {
  const { session } = invocation;
  const name = requireOperand(invocation, 0, 'name');
  const path = getConfigPath(session.io.env);
  const { contexts } = await readContexts(session.io.files, path);
  if (!contexts.has(name)) {
    throw new CliFailure(
      ExitCode.notFound,
      `context ${JSON.stringify(name)} does not exist in ${path}${suggestSimilar(name, contexts.keys())}`,
    );
  }
  await editContexts(session.io.files, path, (document) => document.set('current', name));
  await session.printStatus(`context ${name}: is now the current context`);
}

async function setContext(invocation: LocalInvocation): Promise<void> {
  const { session } = invocation;
  const { serverGiven, server, namespaceGiven, namespace } = session.settings;
  const tokenFile = getTextOption(invocation, 'tokenFile');
  const caFile = getTextOption(invocation, 'caFile');
  const name = requireOperand(invocation, 0, 'name');
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name)) {
    throw createUsageFailure(
      `${JSON.stringify(name)} is not a valid context name: expected letters, digits, dots, hyphens and underscores`,
    );
  }
  if (!serverGiven && !namespaceGiven && tokenFile === undefined && caFile === undefined)
    throw createUsageFailure(
      'nothing to set: give --server, --namespace, --token-file or --ca-file',
    );
  const path = getConfigPath(session.io.env);
  await editContexts(session.io.files, path, (document) => {
    if (!document.has('current')) document.set('current', name);
    if (serverGiven) document.setIn(['contexts', name, 'server'], server);
    if (namespaceGiven) document.setIn(['contexts', name, 'namespace'], namespace);
    if (caFile !== undefined) document.setIn(['contexts', name, 'caFile'], resolve(caFile));
    if (tokenFile === undefined) return;
    document.setIn(['contexts', name, 'tokenFile'], resolve(tokenFile));
    document.deleteIn(['contexts', name, 'identityDir']);
  });
  await session.printStatus(`context ${name}: set in ${path}`);
}
