import { join } from 'node:path';
import { makeDirectory } from '@cloudless/app-kit';
import { SecretKeys } from '@cloudless/api-server';
import { CloudlessError, InvalidInputError, type Random } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import { makePrivateDirectory, readSecretFile, writeSecretFile } from '@cloudless/identity/files';
import {
  KEY_BYTES,
  createKeyEncryption,
  createPassphraseEncryption,
  type KeyEncryption,
} from '@cloudless/secrets';
import type { CoordinatorConfig } from '../config.js';
import type { CoordinatorMachine } from '../coordinator-machine.js';
import { getIdentityDirectory } from '../identity/coordinator-identity.js';

/** File of the key-encryption key that a coordinator creates, in the identity directory. */
export const SECRETS_KEY_FILE = 'secrets-key';
/** Characters of a passphrase at least. */
const MIN_PASSPHRASE = 12;

/**
 * Opens the key-encryption key of a coordinator: the configured key, or the file `secrets-key` in the
 * identity directory, which is created unless the cluster has keys already. A coordinator without the
 * key starts, and refuses SecretsService.
 * @throws kind `invalid` when more than one key is configured; `notFound` or `precondition` when a
 *   configured file is missing, readable by others, or has no key.
 */
export async function openSecretKeys(
  config: CoordinatorConfig,
  machine: CoordinatorMachine,
  state: ClusterState,
): Promise<SecretKeys> {
  const { random } = machine;
  const previous =
    config.secretsPreviousKeyFile === undefined
      ? undefined
      : await readKeyFile(config.secretsPreviousKeyFile, random);
  const configured = await openConfiguredKey(config, machine);
  if (configured !== undefined) return new SecretKeys({ current: configured, previous });
  if (config.state === 'memory') {
    // Nothing that the key encrypts outlives the process.
    return new SecretKeys({
      current: createKeyEncryption('file', random.bytes(KEY_BYTES), random),
    });
  }
  const directory = getIdentityDirectory(config);
  const path = join(directory, SECRETS_KEY_FILE);
  try {
    return new SecretKeys({ current: await readKeyFile(path, random), previous });
  } catch (reason) {
    if (!(reason instanceof CloudlessError) || reason.kind !== 'notFound') throw reason;
  }
  const problem = findReasonForNoNewKey(path, state);
  if (problem !== undefined) {
    machine.log.warn('SecretsService is refused: no key-encryption key', { reason: problem });
    return new SecretKeys({ problem });
  }
  await makeDirectory(directory, 0o700);
  await makePrivateDirectory(directory);
  const bytes = random.bytes(KEY_BYTES);
  await writeSecretFile(path, `${Buffer.from(bytes).toString('hex')}\n`);
  machine.log.info('key-encryption key of secrets created; back it up apart from the state', {
    path,
  });
  return new SecretKeys({ current: createKeyEncryption('file', bytes, random), previous });
}

/** Returns why a coordinator without a key-encryption key must not create one; undefined: it may. */
function findReasonForNoNewKey(path: string, state: ClusterState): string | undefined {
  if ([...state.view().masterKeys()].length > 0)
    return `the key-encryption key of the cluster is missing: ${path} does not exist; copy the file from the backup of the key or from another coordinator, or name the key with --secrets-key-file`;
  if (state.isShared)
    return `coordinators that share a store need the same key-encryption key, and ${path} does not exist; create one with: openssl rand -hex 32, and give the file to each coordinator, there or with --secrets-key-file`;
  return undefined;
}

async function openConfiguredKey(
  { secretsKeyFile, secretsPassphraseFile }: CoordinatorConfig,
  { random, secretsKey, secretsPassphrase }: CoordinatorMachine,
): Promise<KeyEncryption | undefined> {
  const given = [secretsKeyFile, secretsPassphraseFile, secretsKey, secretsPassphrase];
  if (given.filter((value) => value !== undefined).length > 1) {
    const message =
      'one of --secrets-key-file, --secrets-passphrase-file, CLOUDLESS_SECRETS_KEY and CLOUDLESS_SECRETS_PASSPHRASE is enough; remove the others';
    throw new InvalidInputError([{ field: '--secrets-key-file', message }]);
  }
  if (secretsKeyFile !== undefined) return readKeyFile(secretsKeyFile, random);
  if (secretsKey !== undefined)
    return createKeyEncryption(
      'environment',
      parseKey(secretsKey, 'CLOUDLESS_SECRETS_KEY'),
      random,
    );
  if (secretsPassphrase !== undefined)
    return createPassphraseEncryption(
      parsePassphrase(secretsPassphrase, 'CLOUDLESS_SECRETS_PASSPHRASE'),
      random,
    );
  if (secretsPassphraseFile === undefined) return undefined;
  const text = Buffer.from(await readSecretFile(secretsPassphraseFile)).toString('utf8');
  return createPassphraseEncryption(parsePassphrase(text, secretsPassphraseFile), random);
}

async function readKeyFile(path: string, random: Random): Promise<KeyEncryption> {
  const text = Buffer.from(await readSecretFile(path)).toString('utf8');
  return createKeyEncryption('file', parseKey(text, path), random);
}

/** Parses 32 bytes in hex or base64. The error does not contain the text. */
function parseKey(text: string, source: string): Uint8Array {
  const value = text.trim();
  const bytes = /^[0-9a-fA-F]{64}$/.test(value)
    ? Buffer.from(value, 'hex')
    : Buffer.from(/^[A-Za-z0-9+/_-]{43}=?$/.test(value) ? value : '', 'base64');
  if (bytes.length === KEY_BYTES) return new Uint8Array(bytes);
  throw new CloudlessError(
    'precondition',
    `the key-encryption key of ${source} is not 32 bytes in hex or base64; create one with: openssl rand -hex 32`,
  );
}

function parsePassphrase(text: string, source: string): string {
  const passphrase = text.replace(/\r?\n$/, '');
  if (passphrase.length >= MIN_PASSPHRASE) return passphrase;
  throw new CloudlessError(
    'precondition',
    `the passphrase of ${source} is shorter than ${MIN_PASSPHRASE} characters; choose a longer one`,
  );
}
