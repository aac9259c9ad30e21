import { Code, ConnectError } from '@connectrpc/connect';
import type { JsonValue } from '@bufbuild/protobuf';
import type { Command } from 'commander';
import { SecretSchema, readErrorDetails, type Secret } from '@cloudless/api';
import { describeCallFailure } from '../../call/call-failure.js';
import { toMessageJson, type CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import { toConfigData } from '../../manifest/print-manifest.js';
import type { WorkloadName } from '../../names.js';
import { parseObjectName } from '../../object-name.js';
import type { Values } from '../../value-rules.js';
import { formatValueTable } from '../../views/value-view.js';
import { printObjects, type ObjectKind } from '../general/list-objects.js';
import { getTextOption, hasFlag } from '../options.js';
import { checkOutDirectory, printKey, writeValues } from '../values/print-values.js';
import { readVersion } from '../values/read-version.js';
import {
  addAccessTokenOptions,
  hasAccessTokenOption,
  readAccessToken,
  requireAudience,
} from './access-token-options.js';

/** The values of one version of a secret. */
interface SecretValues {
  readonly secret: Secret;
  readonly version: number;
  readonly data: Values;
}

/** How the values of a secret are printed. `version` is that of the values. */
const VALUES_KIND: ObjectKind<SecretValues> = {
  plural: 'secrets',
  fields: [],
  toJson: ({ secret, version, data }) => ({
    ...(toMessageJson(SecretSchema, secret) as Readonly<Record<string, JsonValue>>),
    version,
    ...toConfigData(data),
  }),
  formatTable: (secrets, { style }) =>
    secrets.map(({ data }) => formatValueTable(data, style)).join(''),
};

/** Adds the options with which `secret get` reads values. */
export function addValueReadOptions(command: Command): Command {
  return addAccessTokenOptions(command)
    .option('--audience <audience>', 'audience of the access token')
    .option('--version <number>', 'read this kept version (default: the newest)')
    .option('--key <text>', 'only print the value of this key')
    .option('--out-dir <directory>', 'write each value to a new file of this directory')
    .option('--force', 'replace files of --out-dir that exist');
}

/** Returns true when the command line asks for values, which need an access token. */
export function asksForValues(invocation: Invocation): boolean {
  return (
    hasAccessTokenOption(invocation) ||
    hasFlag(invocation, 'force') ||
    ['audience', 'version', 'key', 'outDir'].some((name) => invocation.options[name] !== undefined)
  );
}

/**
 * Prints the values of one secret with an access token: all, that of `--key` byte for byte, or each
 * to a file of `--out-dir`.
 */
export async function printSecretValues(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const [text = '', ...others] = operands;
  if (others.length > 0) throw createUsageFailure('an access token reads one secret; name one');
  const name = parseObjectName(text, session.settings.namespace, 'secret');
  const key = getTextOption(invocation, 'key');
  const outDir = getTextOption(invocation, 'outDir');
  if (key !== undefined && outDir !== undefined)
    throw createUsageFailure('--key and --out-dir exclude each other');
  if (hasFlag(invocation, 'force') && outDir === undefined)
    throw createUsageFailure('--force replaces files of --out-dir; give --out-dir');
  const version = readVersion(invocation);
  const accessToken = await readAccessToken(
    invocation,
    `create a token with: cloudlessctl secret token create ${name.namespace}/${name.name} --audience AUDIENCE`,
  );
  const audience = requireAudience(invocation);
  if (outDir !== undefined) await checkOutDirectory(session, outDir);
  const values = await readSecretValues(session, name, { accessToken, audience, version });
  const replaces = hasFlag(invocation, 'force');
  try {
    if (key !== undefined) await printKey(session, values.data, key);
    else if (outDir !== undefined) await writeValues(session, values.data, outDir, { replaces });
    else await printObjects(invocation, VALUES_KIND, [values], '', { single: true });
  } catch (reason) {
    if (!(reason instanceof CliFailure)) throw reason;
    const text = `${reason.message}\nThis read has counted as one use of the access token`;
    throw new CliFailure(reason.exitCode, text, { cause: reason });
  }
}

/** Reads values, which counts one use of the token. */
async function readSecretValues(
  session: CliSession,
  name: WorkloadName,
  access: { readonly accessToken: string; readonly audience: string; readonly version: number },
): Promise<SecretValues> {
  try {
    const { secret, data, version } = await session.secrets.getSecret(
      { ...name, ...access },
      session.getCallOptions(),
    );
    if (secret !== undefined) return { secret, data, version };
  } catch (reason) {
    const isRefused =
      reason instanceof ConnectError &&
      reason.code === Code.PermissionDenied &&
      readErrorDetails(reason).metadata?.['role'] === undefined;
    if (!isRefused) throw reason;
    const { exitCode, message } = describeCallFailure(reason, session.settings, session.nowMs);
    const text =
      `${message}\nUsers with the role viewer in namespace ${name.namespace} see the cause with: ` +
      `cloudlessctl secret audit ${name.namespace}/${name.name}`;
    throw new CliFailure(exitCode, text, { cause: reason });
  }
  throw new CliFailure(ExitCode.error, 'the coordinator returned no secret');
}
