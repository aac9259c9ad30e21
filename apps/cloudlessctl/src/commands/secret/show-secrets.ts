import type { JsonValue } from '@bufbuild/protobuf';
import { AccessTokenSchema, SecretSchema, type Secret } from '@cloudless/api';
import { toMessageJson } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import { parseObjectName } from '../../object-name.js';
import { indentStyle } from '../../output/style.js';
import { formatAccessTokenTable } from '../../views/access-token-view.js';
import { SECTION_INDENT, formatSections } from '../../views/sections.js';
import { formatSecretDescription, formatSecretTable } from '../../views/value-view.js';
import {
  describeEmptyList,
  printObjects,
  readListFilter,
  type ObjectKind,
} from '../general/list-objects.js';
import { getTextOption } from '../options.js';
import { listAllPages } from '../page.js';
import { findUses } from '../values/workload-uses.js';
import { readSecretName } from './change-secrets.js';
import { findSecretAndTokens, type FoundSecret } from './find-secret.js';
import { asksForValues, printSecretValues } from './read-secret-values.js';

/** Names, fields and columns of secrets in lists. */
export const SECRET_KIND: ObjectKind<Secret> = {
  plural: 'secrets',
  fields: SecretSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (secret) => toMessageJson(SecretSchema, secret),
  formatTable: (secrets, { nowMs, style, settings }) =>
    formatSecretTable(secrets, nowMs, style, settings.output === 'wide'),
};

/** How secrets are shown whose access tokens are known. */
const FOUND_SECRET_KIND: ObjectKind<FoundSecret> = {
  plural: SECRET_KIND.plural,
  fields: SECRET_KIND.fields,
  toJson: ({ secret, accessTokens }) => ({
    ...(SECRET_KIND.toJson(secret) as Readonly<Record<string, JsonValue>>),
    accessTokens: accessTokens.map((token) => toMessageJson(AccessTokenSchema, token)),
  }),
  formatTable: (found, session) =>
    formatSections(session.style, [
      [
        '',
        SECRET_KIND.formatTable(
          found.map(({ secret }) => secret),
          session,
        ),
      ],
      ...found.map(
        ({ secret: { namespace, name }, accessTokens }) =>
          [
            `Access tokens of ${namespace}/${name}`,
            formatAccessTokenTable(
              accessTokens,
              session.nowMs,
              indentStyle(session.style, SECTION_INDENT),
            ),
          ] as const,
      ),
    ]),
};

/** Lists the secrets of a namespace, or of all namespaces with `--all-namespaces`. */
export async function listSecrets(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const filter = readListFilter(invocation);
  const namePrefix = getTextOption(invocation, 'prefix') ?? '';
  const secrets = await listAllPages(
    (page) =>
      session.secrets.listSecrets({ ...filter, namePrefix, ...page }, session.getCallOptions()),
    (page) => page.secrets,
  );
  const empty = describeEmptyList(SECRET_KIND.plural, filter.namespace);
  const hint = `${empty}; create one with: cloudlessctl secret create NAME --prompt KEY`;
  await printObjects(invocation, SECRET_KIND, secrets, hint);
}

/** Shows secrets by name with their access tokens; with an access token, the values of one. */
export async function getSecrets(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  if (asksForValues(invocation)) return printSecretValues(invocation);
  const names = operands.map((text) => parseObjectName(text, session.settings.namespace, 'secret'));
  const secrets: FoundSecret[] = [];
  for (const name of names) secrets.push(await findSecretAndTokens(session, name));
  await printObjects(invocation, FOUND_SECRET_KIND, secrets, 'no secrets', {
    single: operands.length === 1,
  });
}

/**
 * Shows keys, sizes, versions and access tokens of a secret, and the workloads and routes that use the
 * secret.
 */
export async function describeSecret(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  const found = await findSecretAndTokens(session, name);
  if (session.isStructured) return session.printValue(FOUND_SECRET_KIND.toJson(found));
  const uses = await findUses(session, 'secret', name);
  await session.print(formatSecretDescription(found, uses, session.nowMs, session.style));
}
