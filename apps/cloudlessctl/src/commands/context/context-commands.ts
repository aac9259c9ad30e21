import type { Command } from 'commander';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { getConfigPath, editContexts, readContexts } from '../../config/contexts.js';
import { DEFAULT_SERVER } from '../../config/settings.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import { formatTable } from '../../output/table.js';
import { suggestSimilar } from '../../suggest.js';
import { requireOperand } from '../options.js';

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
    'create or change a context with --server and --namespace',
    setContext,
  );
}

async function listContexts({ session }: LocalInvocation): Promise<void> {
  const { current, contexts, path } = await readContexts(
    session.io.files,
    getConfigPath(session.io.env),
  );
  const rows = [...contexts].map(([name, context]) => ({
    name,
    current: name === current,
    ...context,
  }));
  if (session.isStructured) return session.printValue({ contexts: rows });
  if (rows.length === 0)
    return session.printNotice(
      `no contexts in ${path}; create one with: cloudlessctl context set <name> --server <url>`,
    );
  await session.print(
    formatTable(
      ['CURRENT', 'NAME', 'SERVER', 'NAMESPACE'],
      rows.map(({ name, current: isCurrent, server, namespace }) => [
        isCurrent ? '*' : ' ',
        name,
        server ?? DEFAULT_SERVER,
        namespace ?? 'default',
      ]),
    ),
  );
}

async function showContext({ session }: LocalInvocation): Promise<void> {
  const { server, namespace, context, configPath } = session.settings;
  if (session.isStructured)
    return session.printValue({ server, namespace, context: context ?? null, config: configPath });
  await session.print(
    `context:   ${context ?? '(none)'}\nserver:    ${server}\nnamespace: ${namespace}\nconfig:    ${configPath}\n`,
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
  const name = requireOperand(invocation, 0, 'name');
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name)) {
    throw createUsageFailure(
      `${JSON.stringify(name)} is not a valid context name: expected letters, digits, dots, hyphens and underscores`,
    );
  }
  if (!serverGiven && !namespaceGiven)
    throw createUsageFailure('nothing to set: give --server, --namespace, or both');
  const path = getConfigPath(session.io.env);
  await editContexts(session.io.files, path, (document) => {
    if (!document.has('current')) document.set('current', name);
    if (serverGiven) document.setIn(['contexts', name, 'server'], server);
    if (namespaceGiven) document.setIn(['contexts', name, 'namespace'], namespace);
  });
  await session.printStatus(`context ${name}: set in ${path}`);
}
