import { X509Certificate } from 'node:crypto';
import { errorCodeOf } from '@cloudless/base';
import { CliFailure, ExitCode } from '../call/failure.js';
import type { ClientIdentity, Files } from '../io/io.js';

/** The identity of a user as `cloudlessctl login` stores it. */
export interface StoredIdentity extends ClientIdentity {
  /** Address of the coordinator that issued the certificate. */
  readonly server: string;
  /** Name of the user, such as `user/ada`. */
  readonly principal: string;
  /** Id of the credential, for its revocation. */
  readonly credentialId: string;
  /** Time from which on the login is refused, in milliseconds since the epoch. */
  readonly loginExpiresAtMs: number;
  /** Validity of the certificate, in milliseconds since the epoch. */
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/** Version of the form of the file. */
const FORMAT = 1;

/** Returns the path of the file with the identity. */
export function getIdentityPath(directory: string): string {
  return `${directory}/identity.json`;
}

/**
 * Reads the identity of a directory.
 * @returns Undefined when there is none.
 * @throws {@link CliFailure} when the file is damaged, or others can read the file.
 */
export async function readIdentity(
  files: Files,
  directory: string,
): Promise<StoredIdentity | undefined> {
  const path = getIdentityPath(directory);
  let bytes: Uint8Array;
  try {
    bytes = await files.readSecret(path);
  } catch (reason) {
    if (errorCodeOf(reason) === 'ENOENT') return undefined;
    throw new CliFailure(
      ExitCode.error,
      reason instanceof Error ? reason.message : String(reason),
      {
        cause: reason,
      },
    );
  }
  const identity = parseIdentity(new TextDecoder().decode(bytes));
  if (identity === undefined)
    // Without the cause, whose message may repeat a part of the key.
    throw new CliFailure(
      ExitCode.error,
      `${path} is damaged or of another version of cloudlessctl; log in again with: cloudlessctl login`,
    );
  return identity;
}

/**
 * Stores an identity: one file, replaced atomically, so that key, certificate and roots always
 * belong together.
 */
export async function writeIdentity(
  files: Files,
  directory: string,
  identity: StoredIdentity,
): Promise<void> {
  const text = JSON.stringify({ format: FORMAT, ...identity }, undefined, 2);
  await files.replaceSecret(getIdentityPath(directory), `${text}\n`);
}

/** Returns the validity of the first certificate of a PEM text. */
export function readValidity(chainPem: string): {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
} {
  const { validFrom, validTo } = new X509Certificate(chainPem);
  return { notBeforeMs: Date.parse(validFrom), notAfterMs: Date.parse(validTo) };
}

/** Returns undefined when the text is no identity of this version. */
function parseIdentity(text: string): StoredIdentity | undefined {
  let value: Readonly<Record<string, unknown>>;
  try {
    value = JSON.parse(text) as typeof value;
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || value['format'] !== FORMAT) return undefined;
  const hasTexts = TEXT_FIELDS.every((field) => typeof value[field] === 'string');
  const hasTimes = TIME_FIELDS.every((field) => Number.isFinite(value[field]));
  const ids = value['serverIds'];
  const hasIds = Array.isArray(ids) && ids.every((id) => typeof id === 'string');
  return hasTexts && hasTimes && hasIds ? (value as unknown as StoredIdentity) : undefined;
}

const TEXT_FIELDS = [
  'keyPem',
  'chainPem',
  'bundlePem',
  'trustDomain',
  'server',
  'principal',
  'credentialId',
] as const;
const TIME_FIELDS = ['loginExpiresAtMs', 'notBeforeMs', 'notAfterMs'] as const;
