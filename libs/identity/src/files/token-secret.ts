import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { CloudlessError } from '@cloudless/base';
import { refuse } from './file-errors.js';
import { readSecretFile, writeSecretFile } from './secret-file.js';

/** The key of the hashes of tokens, and where the key is from. */
export interface TokenSecret {
  /** At least 32 bytes. */
  readonly bytes: Uint8Array;
  readonly source: 'environment' | 'file' | 'created';
  /** Writes a created secret to its file, with mode 0600. Otherwise does nothing. */
  save(): Promise<void>;
}

const FILE = 'token-secret';
const MIN_BYTES = 32;
const MIN_CHARACTERS = 32;

/**
 * Returns the secret with which tokens are hashed: from the environment, else from the file
 * `token-secret` of the directory, else a new secret, which {@link TokenSecret.save} writes to the
 * file. Changes no file.
 * @param directory - Exists. See {@link makePrivateDirectory}.
 * @param environment - Value of CLOUDLESS_TOKEN_SECRET; undefined when the variable is not set.
 * @throws {@link CloudlessError} of kind `precondition` when the value or the content of the file is
 *   too short, or see {@link readSecretFile}.
 */
export async function loadTokenSecret(
  directory: string,
  environment: string | undefined,
): Promise<TokenSecret> {
  if (environment !== undefined)
    return {
      bytes: decodeSecret(environment, 'CLOUDLESS_TOKEN_SECRET'),
      source: 'environment',
      save: doNothing,
    };
  const path = join(directory, FILE);
  const readExisting = async (): Promise<TokenSecret> => {
    const text = Buffer.from(await readSecretFile(path)).toString('utf8');
    return { bytes: decodeSecret(text, path), source: 'file', save: doNothing };
  };
  try {
    return await readExisting();
  } catch (reason) {
    if (!(reason instanceof CloudlessError) || reason.kind !== 'notFound') throw reason;
  }
  const bytes = new Uint8Array(randomBytes(MIN_BYTES));
  const save = () => writeSecretFile(path, `${Buffer.from(bytes).toString('hex')}\n`);
  return { bytes, source: 'created', save };
}

/**
 * Writes the secret of a running cluster to its file again when the file was lost, so that tokens
 * stay valid after the next start. Does nothing when the file exists.
 */
export async function restoreTokenSecret(directory: string, bytes: Uint8Array): Promise<void> {
  try {
    await writeSecretFile(join(directory, FILE), `${Buffer.from(bytes).toString('hex')}\n`);
  } catch (reason) {
    if (!(reason instanceof CloudlessError) || reason.kind !== 'exists') throw reason;
  }
}

async function doNothing(): Promise<void> {
  // The secret is stored already.
}

/**
 * Decodes hex or base64 of at least 32 bytes; any other text of at least 32 characters counts as its
 * UTF-8 bytes.
 */
function decodeSecret(value: string, source: string): Uint8Array {
  const text = value.trim();
  const decoded = decodeHex(text) ?? decodeBase64(text);
  if (decoded !== undefined && decoded.length >= MIN_BYTES) return decoded;
  if (text.length >= MIN_CHARACTERS) return new Uint8Array(Buffer.from(text, 'utf8'));
  throw refuse(
    `the token secret of ${source} is too short: 32 bytes in hex or base64, or a text of 32 characters, are needed; ` +
      'create one with: openssl rand -hex 32',
  );
}

function decodeHex(text: string): Uint8Array | undefined {
  return /^(?:[0-9a-fA-F]{2})+$/.test(text) ? new Uint8Array(Buffer.from(text, 'hex')) : undefined;
}

/** Also accepts the alphabet for URLs, and missing `=`. */
function decodeBase64(text: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) return undefined;
  return new Uint8Array(Buffer.from(text, 'base64'));
}
