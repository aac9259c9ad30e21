import { fromJson } from '@bufbuild/protobuf';
import {
  TimestampSchema,
  durationFromMs,
  type Duration,
  type Timestamp,
} from '@bufbuild/protobuf/wkt';
import { ConnectError } from '@connectrpc/connect';
import { SecretSchema, readErrorDetails, type Secret } from '@cloudless/api';
import { describeCallFailure } from '../../call/call-failure.js';
import { toMessageJson, type CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import { parseDurationOption } from '../../config/settings.js';
import { formatObjectName, parseObjectName } from '../../object-name.js';
import type { WorkloadName } from '../../names.js';
import { formatRouteUses, formatUses, summariseUses } from '../../views/use-view.js';
import { changeEach } from '../change-each.js';
import { getListOption, getTextOption, hasFlag, requireOperand } from '../options.js';
import { confirmLoss, confirmOnTerminal } from '../values/confirm-values.js';
import { readPreview } from '../values/effect-options.js';
import { readLabels } from '../values/read-labels.js';
import { hasValueOptions, readValues } from '../values/value-options.js';
import { changesReplicas, findUses, waitForRollouts } from '../values/workload-uses.js';
import { getWaitOptions } from '../wait-options.js';
import { findSecret } from './find-secret.js';

/** Creates a secret from the values that the options give. */
export async function createSecret(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  if (!hasValueOptions(invocation))
    throw createUsageFailure(
      'give at least one value, such as --prompt password or --from-file password=FILE',
    );
  const expiry = readExpiry(invocation);
  const labels = readLabels(invocation, {});
  const data = await readValues(invocation, 'secret');
  const secret = await session.secrets.createSecret(
    {
      ...name,
      ...expiry,
      data: { ...data },
      audiences: readAudiences(invocation) ?? [getDefaultAudience(name)],
      labels,
      immutable: hasFlag(invocation, 'immutable'),
      requestId: session.getRequestId(),
    },
    session.getCallOptions(),
  );
  await session.printStatus(
    `${formatObjectName('secret', secret)}: created, for ${secret.audiences.join(', ')}`,
  );
  if (session.isStructured) await session.printValue(toMessageJson(SecretSchema, secret));
}

/** The audience of a new secret: every workload of the namespace. */
export function getDefaultAudience({ namespace }: WorkloadName): string {
  return `workload/${namespace}.*`;
}

/**
 * Changes a secret. The effect on workloads and routes is shown first, and asked about on a terminal.
 */
export async function updateSecret(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  const isPreview = readPreview(invocation);
  const isNewVersion = hasValueOptions(invocation);
  const change = readMetadata(invocation);
  const revokesTokens = hasFlag(invocation, 'revokeTokens');
  if (!isNewVersion && change.paths.length === 0 && (!isPreview || revokesTokens))
    throw createUsageFailure(
      revokesTokens
        ? `--revoke-tokens comes with a change; to revoke the tokens alone: cloudlessctl secret token revoke ${name.namespace}/${name.name} --all`
        : 'nothing to change: give a value or another flag',
    );
  // Values are read before the first call, so that a wrong file is reported at once.
  const data = await readValues(invocation, 'secret');
  const current = await findSecret(session, name);
  if (isNewVersion && current.immutable)
    throw new CliFailure(
      ExitCode.conflict,
      `${formatObjectName('secret', name)} is immutable; create a secret of another name`,
    );
  const lost = isNewVersion ? findLostKeys(invocation, current, Object.keys(data)) : [];
  const asksForEffect = isPreview && change.paths.length === 0;
  const uses = isNewVersion || asksForEffect ? await findUses(session, 'secret', name) : [];
  const routes = isNewVersion || asksForEffect ? formatRouteUses(current) : '';
  const removed = lost.map((key) => `  key ${key}: removed\n`).join('');
  if (!session.isStructured) await session.print(removed + formatUses(uses) + routes);
  const label = formatObjectName('secret', name);
  if (isPreview && !isNewVersion && asksForEffect)
    return session.printStatus(`${label}: would get version ${current.version + 1}`);
  if (!isPreview) await confirmUpdate(invocation, name, uses.filter(changesReplicas), lost);
  const secret = await session.secrets.updateSecret(
    {
      ...name,
      ...change.fields,
      data: { ...data },
      keepOtherKeys: isNewVersion && !hasFlag(invocation, 'replace'),
      labels: readLabels(invocation, current.labels),
      updateMask: { paths: [...(isNewVersion ? ['data'] : []), ...change.paths] },
      expectedGeneration: current.generation,
      dryRun: isPreview,
      revokeExistingTokens: revokesTokens,
      requestId: isPreview ? '' : session.getRequestId(),
    },
    session.getCallOptions(),
  );
  await reportUpdate(invocation, secret, current, isPreview);
  if (hasFlag(invocation, 'wait') && secret.version > current.version)
    await waitForRollouts(session, uses, getWaitOptions(invocation));
  if (session.isStructured) await session.printValue(toMessageJson(SecretSchema, secret));
}

/** Asks before keys are lost; on a terminal also before replicas change. */
async function confirmUpdate(
  invocation: Invocation,
  name: WorkloadName,
  affected: Parameters<typeof summariseUses>[0],
  lost: readonly string[],
): Promise<void> {
  const label = formatObjectName('secret', name);
  const effect = affected.length === 0 ? '' : `, and ${summariseUses(affected)}`;
  if (lost.length > 0)
    await confirmLoss(
      invocation,
      `Remove ${lost.join(', ')} from ${label}${effect}?`,
      `${label} would lose the keys ${lost.join(', ')}`,
    );
  else if (effect !== '') await confirmOnTerminal(invocation, `Change ${label}${effect}?`);
}

/** Returns the keys of the newest version that `--replace` removes. */
function findLostKeys(
  invocation: Invocation,
  current: Secret,
  given: readonly string[],
): readonly string[] {
  if (!hasFlag(invocation, 'replace')) return [];
  const keys = Object.keys(current.versions.at(-1)?.sizes ?? {}).sort();
  return keys.filter((name) => !given.includes(name));
}

async function reportUpdate(
  invocation: Invocation,
  secret: Secret,
  current: Secret,
  isPreview: boolean,
): Promise<void> {
  const text =
    secret.version > current.version
      ? `${isPreview ? 'would get' : 'has'} version ${secret.version}`
      : secret.generation > current.generation
        ? `${isPreview ? 'would be ' : ''}updated`
        : 'unchanged';
  const tokens = hasFlag(invocation, 'revokeTokens')
    ? `; access tokens ${isPreview ? 'would be ' : ''}revoked`
    : '';
  await invocation.session.printStatus(`${formatObjectName('secret', secret)}: ${text}${tokens}`);
}

/** Deletes secrets, after a question. */
export async function deleteSecrets(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const names = invocation.operands.map((text) =>
    parseObjectName(text, session.settings.namespace, 'secret'),
  );
  const texts = names.map((name) => formatObjectName('secret', name)).join(', ');
  await confirmLoss(
    invocation,
    `Delete ${texts}? The values cannot be restored.`,
    `the values of ${texts} would be lost`,
  );
  const deleted = await changeEach(session, names, {
    describe: (name) => formatObjectName('secret', name),
    change: async (name, requestId) => {
      const request = { ...name, requestId, revokeTokens: hasFlag(invocation, 'revokeTokens') };
      await session.secrets
        .deleteSecret(request, session.getCallOptions())
        .catch((reason: unknown) => refuseDeletion(session, reason));
      await session.printStatus(`${formatObjectName('secret', name)}: deleted`);
    },
  });
  deleted.throwFailure();
}

/** @throws the error of a deletion, with the flag that helps when access tokens are the reason. */
function refuseDeletion(session: CliSession, reason: unknown): never {
  const isStillUsed =
    reason instanceof ConnectError && readErrorDetails(reason).reason === 'STILL_USED';
  if (!isStillUsed || !/\btokens?\b/.test(reason.rawMessage)) throw reason;
  const { exitCode, message } = describeCallFailure(reason, session.settings, session.nowMs);
  if (message.includes('--revoke-tokens')) throw reason;
  throw new CliFailure(exitCode, `${message}\nTo revoke the access tokens, add --revoke-tokens`, {
    cause: reason,
  });
}

/** Returns the secret that the first operand names. */
export function readSecretName(invocation: Invocation): WorkloadName {
  const text = requireOperand(invocation, 0, 'name of the secret');
  return parseObjectName(text, invocation.session.settings.namespace, 'secret');
}

/** Fields of an update beside the values, with their paths. */
interface MetadataChange {
  readonly fields: {
    readonly audiences?: string[];
    readonly ttl?: Duration;
    readonly expiresAt?: Timestamp;
    readonly immutable?: boolean;
  };
  readonly paths: readonly string[];
}

function readMetadata(invocation: Invocation): MetadataChange {
  const audiences = readAudiences(invocation);
  const expiry = readExpiry(invocation);
  const removesExpiry = invocation.options['expiry'] === false;
  if (removesExpiry && Object.keys(expiry).length > 0)
    throw createUsageFailure('--no-expiry excludes --ttl and --expires-at');
  const isImmutable = hasFlag(invocation, 'immutable');
  return {
    fields: {
      ...expiry,
      ...(audiences === undefined ? {} : { audiences }),
      ...(isImmutable ? { immutable: true } : {}),
    },
    paths: [
      ...(audiences === undefined ? [] : ['audiences']),
      ...(removesExpiry || Object.keys(expiry).length > 0 ? ['expires_at'] : []),
      ...(isImmutable ? ['immutable'] : []),
      ...(getListOption(invocation, 'label').length === 0 ? [] : ['labels']),
    ],
  };
}

/** Returns the audiences of `--audience`; undefined without the option. */
function readAudiences(invocation: Invocation): string[] | undefined {
  const audiences = getListOption(invocation, 'audience');
  for (const audience of audiences) {
    if (!/^[A-Za-z0-9._:/@-]*\*?$/.test(audience) || audience === '' || audience.length > 253)
      throw createUsageFailure(
        `--audience: expected letters, digits and . _ : / @ -, with * only at the end, such as workload/default.web, got ${JSON.stringify(audience)}`,
      );
  }
  return audiences.length === 0 ? undefined : [...new Set(audiences)];
}

function readExpiry(invocation: Invocation): {
  readonly ttl?: Duration;
  readonly expiresAt?: Timestamp;
} {
  const ttl = getTextOption(invocation, 'ttl');
  const expiresAt = getTextOption(invocation, 'expiresAt');
  if (ttl !== undefined && expiresAt !== undefined)
    throw createUsageFailure('--ttl and --expires-at exclude each other');
  if (ttl !== undefined) return { ttl: durationFromMs(parseDurationOption('--ttl', ttl)) };
  if (expiresAt === undefined) return {};
  try {
    return { expiresAt: fromJson(TimestampSchema, expiresAt) };
  } catch {
    throw createUsageFailure(
      `--expires-at: expected a time such as 2026-01-31T12:00:00Z, got ${JSON.stringify(expiresAt)}`,
    );
  }
}
