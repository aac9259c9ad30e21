import type { Command } from 'commander';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { JoinTokenSchema } from '@cloudless/api';
import type { CreateJoinTokenRequestSchema, JoinToken } from '@cloudless/api';
import type { CommandTree, Invocation, LocalInvocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { toMessageJson } from '../../call/cli-session.js';
import { collectValue, parseWholeNumber } from '../../flags/flag-values.js';
import { formatCount } from '../../output/human.js';
import { formatStyledTime } from '../../output/style.js';
import type { Style } from '../../output/style.js';
import { formatTokenTable } from '../../views/token-view.js';
import { changeEach } from '../change-each.js';
import { addOutputOptions, printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { addLifetimeOption, readLifetime } from '../lifetime-option.js';
import { getListOption, getTextOption } from '../options.js';
import { listAllPages } from '../page.js';
import { addSecretOptions, createAndPrintSecret } from '../print-secret.js';

/** How join tokens are listed. */
const TOKEN_KIND: ObjectKind<JoinToken> = {
  plural: 'tokens',
  fields: JoinTokenSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (token) => toMessageJson(JoinTokenSchema, token),
  formatTable: (tokens, { nowMs, style, settings }) =>
    formatTokenTable(tokens, nowMs, style, settings.output === 'wide'),
};

/** Adds the subcommands of `token`. */
export function addTokenCommands(tree: CommandTree, parent: Command): void {
  addSecretOptions(
    addJoinTokenOptions(
      tree.addCommand(
        parent,
        'create',
        'create a join token for machines; the text is shown once',
        createToken,
      ),
    ),
  );
  addOutputOptions(
    tree.addCommand(parent, 'list', 'list join tokens, newest first', listTokens).alias('ls'),
  );
  tree.addCommand(
    parent,
    'revoke <tokens...>',
    'revoke join tokens; nodes that have joined stay',
    revokeTokens,
  );
}

/** Adds the options that describe a new join token. */
export function addJoinTokenOptions(command: Command): Command {
  command.option('--uses <number>', 'number of machines that may join (default: 1)');
  return addLifetimeOption(command, 'time until the token expires, for example 1h (default: 24h)')
    .option('--node-pattern <pattern>', "names that the nodes may have, for example 'edge-*'")
    .option('--label <key=value>', 'label that the nodes get; may be repeated', collectValue)
    .option(
      '--cidr <cidr>',
      'network from which machines may join, for example 10.0.0.0/8; may be repeated',
      collectValue,
    )
    .option('--description <text>', 'what the token is for');
}

/**
 * Returns the request of the options of {@link addJoinTokenOptions}.
 * @throws {@link CliFailure} with exit code 2 for an invalid value.
 */
export function readJoinTokenRequest(
  invocation: LocalInvocation,
): MessageInitShape<typeof CreateJoinTokenRequestSchema> {
  const uses = getTextOption(invocation, 'uses');
  const lifetime = readLifetime(invocation);
  return {
    ...(uses === undefined ? {} : { maxUses: parseUses(uses) }),
    ...(lifetime === undefined ? {} : { lifetime: durationFromMs(lifetime.ms) }),
    nodeIdPattern: getTextOption(invocation, 'nodePattern') ?? '',
    labels: Object.fromEntries(getListOption(invocation, 'label').map(parseLabel)),
    cidrs: [...getListOption(invocation, 'cidr')],
    description: getTextOption(invocation, 'description') ?? '',
  };
}

/** Zero would mean the default in the request. */
function parseUses(text: string): number {
  const uses = parseWholeNumber('--uses', text);
  if (uses === 0) throw createUsageFailure('--uses: must be at least 1');
  return uses;
}

function parseLabel(text: string): readonly [key: string, value: string] {
  const equals = text.indexOf('=');
  if (equals < 1)
    throw createUsageFailure(`--label: expected key=value, got ${JSON.stringify(text)}`);
  return [text.slice(0, equals), text.slice(equals + 1)];
}

/** Describes a join token without its secret: `join token a1b2: 10 uses, expires …`. */
export function describeToken(token: JoinToken | undefined, style: Style): string {
  const nodes = token?.nodeIdPattern ? `, nodes ${token.nodeIdPattern}` : '';
  return `join token ${token?.id ?? ''}: ${formatCount(token?.maxUses ?? 0, 'use')}${nodes}, expires ${formatStyledTime(token?.expiresAt, style)}`;
}

async function createToken(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const request = readJoinTokenRequest(invocation);
  await createAndPrintSecret(invocation, async () => {
    const options = session.getCallOptions();
    const { token, text } = await session.identities.createJoinToken(request, options);
    return {
      text,
      json: token === undefined ? {} : toMessageJson(JoinTokenSchema, token),
      summary: describeToken(token, session.style),
      next: (file) => `cloudlessctl node join-command --join-token-file ${file}`,
    };
  });
}

export async function listTokens(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const tokens = await listAllPages(
    (page) => session.identities.listJoinTokens(page, session.getCallOptions()),
    (page) => page.tokens,
  );
  await printObjects(
    invocation,
    TOKEN_KIND,
    tokens,
    'no join tokens; create one with: cloudlessctl token create',
  );
}

async function revokeTokens(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const revoked = await changeEach(session, [...new Set(invocation.operands)], {
    describe: (id) => `join token ${id}`,
    change: async (id) => {
      const token = await session.identities.revokeJoinToken({ id }, session.getCallOptions());
      const joined =
        token.uses.length === 0
          ? 'no node has joined with it'
          : `the nodes that joined with it stay: ${token.uses.map(({ nodeId }) => nodeId).join(', ')}`;
      await session.printStatus(`join token ${id}: revoked; ${joined}`);
      return token;
    },
  });
  if (session.isStructured) {
    const tokens = revoked.results.map((token) => toMessageJson(JoinTokenSchema, token));
    const [only] = tokens;
    await session.printValue(
      invocation.operands.length === 1 && only !== undefined ? only : { tokens },
    );
  }
  revoked.throwFailure();
}
