import { SecretSchema, type Secret } from '@cloudless/api';
import { toMessageJson } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import { parseObjectName } from '../../object-name.js';
import { formatSecretDescription, formatSecretTable } from '../../views/value-view.js';
import { printObjects, type ObjectKind } from '../general/list-objects.js';
import { getTextOption, hasFlag } from '../options.js';
import { listAllPages } from '../page.js';
import { findUses } from '../values/workload-uses.js';
import { readSecretName } from './change-secrets.js';
import { findSecret } from './find-secret.js';

/** Names, fields and columns of secrets in lists. */
export const SECRET_KIND: ObjectKind<Secret> = {
  plural: 'secrets',
  fields: SecretSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (secret) => toMessageJson(SecretSchema, secret),
  formatTable: (secrets, { nowMs, style, settings }) =>
    formatSecretTable(secrets, nowMs, style, settings.output === 'wide'),
};

/** Lists the secrets of a namespace, or of all namespaces with `--all-namespaces`. */
export async function listSecrets(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const namespace = hasFlag(invocation, 'allNamespaces') ? '' : session.settings.namespace;
  const filter = {
    namespace,
    labelSelector: getTextOption(invocation, 'selector') ?? '',
    namePrefix: getTextOption(invocation, 'prefix') ?? '',
  };
  const secrets = await listAllPages(
    (page) => session.secrets.listSecrets({ ...filter, ...page }, session.getCallOptions()),
    (page) => page.secrets,
  );
  const place = namespace === '' ? '' : ` in namespace ${namespace}`;
  const hint = `no secrets${place}; create one with: cloudlessctl secret create NAME --prompt KEY`;
  await printObjects(invocation, SECRET_KIND, secrets, hint);
}

/** Shows secrets by name, without values. */
export async function getSecrets(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const names = operands.map((text) => parseObjectName(text, session.settings.namespace, 'secret'));
  const secrets: Secret[] = [];
  for (const name of names) secrets.push(await findSecret(session, name));
  await printObjects(invocation, SECRET_KIND, secrets, 'no secrets', {
    single: operands.length === 1,
  });
}

/** Shows keys, sizes and versions of a secret, and the workloads that use the secret. */
export async function describeSecret(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  const secret = await findSecret(session, name);
  if (session.isStructured) return session.printValue(SECRET_KIND.toJson(secret));
  const uses = await findUses(session, 'secret', name);
  await session.print(formatSecretDescription(secret, uses, session.nowMs, session.style));
}
