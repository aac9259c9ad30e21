import type { Command } from 'commander';
import { quoteForShell } from '@cloudless/base';
import { JoinTokenSchema } from '@cloudless/api';
import type { LocalInvocation, CommandTree } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { createUsageFailure } from '../../call/failure.js';
import { withCallFailures } from '../../call/open-session.js';
import { checkServer } from '../../config/context.js';
import { joinServers, splitServers } from '../../config/server-list.js';
import { getTextOption } from '../options.js';
import {
  addJoinTokenOptions,
  describeToken,
  readJoinTokenRequest,
} from '../token/token-commands.js';

export function addJoinCommand(tree: CommandTree, parent: Command): void {
  addJoinTokenOptions(
    tree
      .addLocalCommand(
        parent,
        'join-command',
        'print the command with which a machine joins the cluster; creates a join token',
        printJoinCommand,
        (options) => options['joinTokenFile'] !== undefined,
      )
      .option(
        '--join-token-file <path>',
        'use the token of this file on the new machine instead of creating a token',
      )
      .option(
        '--coordinator <url>',
        'address of the coordinator for the new machine (default: the server in use)',
      ),
  );
}

/** Options that describe a new token and contradict `--join-token-file`. */
const TOKEN_OPTIONS = ['uses', 'lifetime', 'nodePattern', 'label', 'cidr', 'description'] as const;

async function printJoinCommand(invocation: LocalInvocation): Promise<void> {
  const { session } = invocation;
  const coordinator = readCoordinator(invocation);
  const file = getTextOption(invocation, 'joinTokenFile');
  if (file === undefined) return printNewToken(invocation, coordinator);
  const extra = TOKEN_OPTIONS.find((name) => invocation.options[name] !== undefined);
  if (extra !== undefined)
    throw createUsageFailure(
      `--join-token-file uses an existing token: remove --${extra.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`,
    );
  const command = `${toAgentCommand(coordinator)} --join-token-file ${quoteForShell(file)}`;
  if (session.isStructured) return session.printValue({ coordinator, command });
  await session.print(`${command}\n`);
  await session.printNotice(
    `Run this command on the new machine, with the token in ${file} (mode 0600).`,
  );
}

async function printNewToken(invocation: LocalInvocation, coordinator: string): Promise<void> {
  const request = readJoinTokenRequest(invocation);
  await withCallFailures(invocation.session, async (session: CliSession) => {
    const { token, text } = await session.identities.createJoinToken(
      request,
      session.getCallOptions(),
    );
    // The shell's own printf: the token is in no argument list of a process.
    const command = `printf %s ${text} | ${toAgentCommand(coordinator)} --join-token-file -`;
    if (session.isStructured)
      return session.printValue({
        coordinator,
        token: token === undefined ? null : toMessageJson(JoinTokenSchema, token),
        text,
        command,
      });
    await session.print(`${command}\n`);
    await session.printNotice(describeToken(token, session.style));
    await session.printNotice(
      'Run this command on the new machine. It contains the token; keep it secret. To pass the token in a file:\n' +
        '  cloudlessctl token create --output-file join-token\n' +
        `  ${toAgentCommand(coordinator)} --join-token-file join-token`,
    );
  });
}

const toAgentCommand = (coordinator: string): string =>
  `cloudless-agent run --coordinator ${coordinator}`;

/** Returns the address for the new machine, after a check that the machine can use the address. */
function readCoordinator(invocation: LocalInvocation): string {
  const given = getTextOption(invocation, 'coordinator');
  const problem = given === undefined ? undefined : checkServer(given);
  if (problem !== undefined) throw createUsageFailure(`--coordinator: ${problem}`);
  const servers = splitServers(given ?? invocation.session.settings.server);
  const coordinator = joinServers(servers);
  const { protocol, hostname } = new URL(servers[0] ?? '');
  if (protocol !== 'https:')
    throw createUsageFailure(
      `a machine joins over https only, and the address is ${coordinator}; give the address with --coordinator https://HOST:PORT`,
    );
  if (/^(127\.|\[::1\]$|localhost$)/.test(hostname) && given === undefined)
    throw createUsageFailure(
      `${coordinator} is the address of this machine for itself; give the address that the new machine reaches with --coordinator https://HOST:PORT`,
    );
  return coordinator;
}
