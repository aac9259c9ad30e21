import { durationFromMs, type Duration } from '@bufbuild/protobuf/wkt';
import type { Command } from 'commander';
import {
  AccessTokenSchema,
  RevokeAccessTokenResponseSchema,
  ValidateAccessTokenResponseSchema,
  type AccessToken,
} from '@cloudless/api';
import { toMessageJson } from '../../call/cli-session.js';
import { ExitCode, createUsageFailure } from '../../call/failure.js';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { parseWholeNumber } from '../../flags/flag-values.js';
import type { WorkloadName } from '../../names.js';
import { formatObjectName } from '../../object-name.js';
import { formatCount } from '../../output/human.js';
import {
  describeAccessToken,
  formatAccessTokenTable,
  formatUsesLeft,
} from '../../views/access-token-view.js';
import { formatStyledTime } from '../../output/style.js';
import { changeEach } from '../change-each.js';
import { addOutputOptions, printObjects, type ObjectKind } from '../general/list-objects.js';
import { addLifetimeOption, readLifetime } from '../lifetime-option.js';
import { getTextOption, hasFlag, refuseNames } from '../options.js';
import { addSecretOptions, createAndPrintSecret } from '../print-secret.js';
import { confirmLoss } from '../values/confirm-values.js';
import {
  addAccessTokenOptions,
  hasAccessTokenOption,
  isAccessToken,
  readAccessToken,
  requireAudience,
} from './access-token-options.js';
import { findSecretAndTokens } from './find-secret.js';
import { readSecretName } from './change-secrets.js';

/** Bounds of the API: the longest life of an access token, and its most uses. */
const MAX_TTL_MS = 24 * 3_600_000;
const MIN_TTL_MS = 1_000;
const MAX_USES = 1_000_000;

/** How access tokens are listed. */
const ACCESS_TOKEN_KIND: ObjectKind<AccessToken> = {
  plural: 'accessTokens',
  fields: AccessTokenSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (token) => toMessageJson(AccessTokenSchema, token),
  formatTable: (tokens, { nowMs, style }) => formatAccessTokenTable(tokens, nowMs, style),
};

/** Adds the subcommands of `secret token`. */
export function addAccessTokenCommands(tree: CommandTree, parent: Command): void {
  addSecretOptions(
    addLifetimeOption(
      tree
        .addCommand(
          parent,
          'create <secret>',
          'create a token that reads the values of a secret; the text is shown once',
          createToken,
        )
        .option('--audience <audience>', 'who may use the token, such as workload/default.web'),
      'time until the token expires, at most 24h (default: 1h)',
    ).option(
      '--max-uses <number>',
      'number of times that the token may be used, or unlimited (default: 1)',
    ),
  );
  addOutputOptions(
    tree
      .addCommand(parent, 'list <secret>', 'list the valid access tokens of a secret', listTokens)
      .alias('ls'),
  );
  addAccessTokenOptions(
    tree.addCommand(
      parent,
      'revoke <secret> [access-tokens...]',
      'revoke access tokens: by id, by text, or all',
      revokeTokens,
    ),
  )
    .option('--all', 'revoke all access tokens of the secret')
    .option('-y, --yes', 'do not ask before --all');
  addAccessTokenOptions(
    tree.addCommand(
      parent,
      'validate <secret>',
      'show whether an access token is valid, without a use; exit code 1: not valid',
      validateToken,
    ),
  ).option('--audience <audience>', 'audience of the token');
}

async function createToken(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  const request = {
    ...name,
    audience: requireAudience(invocation),
    ...readTtl(invocation),
    ...readMaxUses(invocation),
  };
  await createAndPrintSecret(invocation, async () => {
    const { token, text } = await session.secrets.generateAccessToken(
      request,
      session.getCallOptions(),
    );
    return {
      text,
      json: token === undefined ? {} : toMessageJson(AccessTokenSchema, token),
      summary: `access token ${token?.id ?? ''} of ${formatObjectName('secret', name)}: ${describeAccessToken(token, session.style)}`,
      next: (file) =>
        `cloudlessctl secret get ${name.namespace}/${name.name} --access-token-file ${file} --audience ${request.audience}`,
    };
  });
}

function readTtl(invocation: Invocation): { readonly ttl?: Duration } {
  const lifetime = readLifetime(invocation);
  if (lifetime === undefined) return {};
  const { option, text, ms } = lifetime;
  if (ms < MIN_TTL_MS || ms > MAX_TTL_MS)
    throw createUsageFailure(`${option}: expected 1s to 24h, got ${text}`);
  return { ttl: durationFromMs(ms) };
}

function readMaxUses(invocation: Invocation): { readonly maxUses?: number } {
  const text = getTextOption(invocation, 'maxUses');
  if (text === undefined) return {};
  if (text === 'unlimited') return { maxUses: -1 };
  const maxUses = /^\d/.test(text) ? parseWholeNumber('--max-uses', text) : 0;
  if (maxUses < 1 || maxUses > MAX_USES)
    throw createUsageFailure(
      `--max-uses: expected 1 to ${MAX_USES}, or unlimited, got ${JSON.stringify(text)}`,
    );
  return { maxUses };
}

async function listTokens(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  const { accessTokens } = await findSecretAndTokens(session, name);
  await printObjects(
    invocation,
    ACCESS_TOKEN_KIND,
    accessTokens,
    `no valid access tokens of ${formatObjectName('secret', name)}; create one with: cloudlessctl secret token create ${name.namespace}/${name.name} --audience AUDIENCE`,
  );
}

async function revokeTokens(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  const ids = [...new Set(invocation.operands.slice(1))];
  const ways = [ids.length > 0, hasAccessTokenOption(invocation), hasFlag(invocation, 'all')];
  if (ways.filter((isGiven) => isGiven).length !== 1)
    throw createUsageFailure(
      'name the tokens in one way: by their ids, with --access-token-file, or with --all',
    );
  refuseNames(session);
  // A text in the place of an id must not be shown.
  if (ids.some(isAccessToken))
    throw createUsageFailure(
      'this is the text of an access token, not an id; give the second part of the text, or use --access-token-file',
    );
  if (ids.length > 0) return revokeById(invocation, name, ids);
  const label = formatObjectName('secret', name);
  if (hasFlag(invocation, 'all')) {
    await confirmLoss(
      invocation,
      `Revoke all access tokens of ${label}? Their holders can no longer read the values.`,
      `the holders of all access tokens of ${label} would no longer read the values`,
    );
    return revokeOnce(invocation, name, { all: true });
  }
  return revokeOnce(invocation, name, { accessToken: await readAccessToken(invocation, '') });
}

/** Revokes one token by its text, or all tokens. */
async function revokeOnce(
  { session }: Invocation,
  name: WorkloadName,
  which: { readonly accessToken: string } | { readonly all: true },
): Promise<void> {
  const response = await session.secrets.revokeAccessToken(
    { ...name, ...which },
    session.getCallOptions(),
  );
  const text =
    'all' in which
      ? `${formatCount(response.revoked, 'access token')} revoked`
      : `access token ${describeRevocation(response.revoked)}`;
  await session.printStatus(`${formatObjectName('secret', name)}: ${text}`);
  if (session.isStructured)
    await session.printValue(toMessageJson(RevokeAccessTokenResponseSchema, response));
}

async function revokeById(
  invocation: Invocation,
  name: WorkloadName,
  ids: readonly string[],
): Promise<void> {
  const { session } = invocation;
  const revoked = await changeEach(session, ids, {
    describe: (id) => `access token ${id}`,
    change: async (tokenId) => {
      const response = await session.secrets.revokeAccessToken(
        { ...name, tokenId },
        session.getCallOptions(),
      );
      await session.printStatus(
        `${formatObjectName('secret', name)}: access token ${tokenId} ${describeRevocation(response.revoked)}`,
      );
      return response.revoked;
    },
  });
  if (session.isStructured)
    await session.printValue({ revoked: revoked.results.reduce((sum, count) => sum + count, 0) });
  revoked.throwFailure();
}

function describeRevocation(revoked: number): string {
  return revoked === 0 ? 'had ended before' : 'revoked';
}

/** Exit code 0: GetSecret would accept the token now; 1: it would not. */
async function validateToken(invocation: Invocation): Promise<number> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  const audience = requireAudience(invocation);
  const accessToken = await readAccessToken(
    invocation,
    'cloudlessctl secret token create has printed its text',
  );
  const response = await session.secrets.validateAccessToken(
    { ...name, accessToken, audience },
    session.getCallOptions(),
  );
  const { valid, reason, expiresAt, usesRemaining } = response;
  if (session.isStructured)
    await session.printValue(toMessageJson(ValidateAccessTokenResponseSchema, response));
  else if (valid)
    await session.print(
      `valid: ${formatUsesLeft(usesRemaining)} left, expires ${formatStyledTime(expiresAt, session.style)}\n`,
    );
  else await session.print(`not valid: ${REASON_TEXTS[reason] ?? reason}\n`);
  return valid ? ExitCode.ok : ExitCode.error;
}

/** Explanations of the reasons of the API that a user may not understand from the word alone. */
const REASON_TEXTS: Readonly<Record<string, string>> = {
  unknown:
    'the secret has no such token for this audience and this caller; ' +
    'users with the role viewer find the cause with: cloudlessctl secret audit',
};
