import type { Random } from '@cloudless/base';
import { KEY_BYTES, encodeContext, open, seal } from './aead.js';
import { decodeValues, encodeValues, type SecretData } from './values.js';

/** What the ciphertext of a version of a secret is bound to. */
export interface SecretContext {
  readonly namespace: string;
  readonly name: string;
  /** Uid of the secret. A secret that was deleted and created again has another. */
  readonly uid: string;
  /** Number of the version. */
  readonly version: number;
}

/** A key that encrypts the data keys of secrets. */
export interface MasterKey {
  readonly id: string;
  /** 32 bytes. */
  readonly bytes: Uint8Array;
}

/** The encrypted values of a version of a secret. */
export interface Envelope {
  /** Id of the master key. */
  readonly masterKeyId: string;
  /** The data key of this version, encrypted with the master key. */
  readonly wrappedKey: Uint8Array;
  /** The values, encrypted with the data key. */
  readonly ciphertext: Uint8Array;
}

/** Encrypts the values of a version with a new data key, and the data key with a master key. */
export function sealSecret(
  masterKey: MasterKey,
  context: SecretContext,
  data: SecretData,
  random: Random,
): Envelope {
  const values = encodeValues(data);
  try {
    return sealValues(masterKey, context, values, random);
  } finally {
    values.fill(0);
  }
}

/**
 * Decrypts the values of a version.
 * @returns Undefined when the master key or the context is another, or the bytes were changed.
 */
export function openSecret(
  masterKey: MasterKey,
  context: SecretContext,
  envelope: Envelope,
): SecretData | undefined {
  const values = openValues(masterKey, context, envelope);
  if (values === undefined) return undefined;
  const data = decodeValues(values);
  values.fill(0);
  return data;
}

/**
 * Encrypts a version with another master key. The ciphertext is bound to the id of the master key, so
 * the values are encrypted again too, with a new data key.
 * @returns Undefined when the master key `from` or the context is another, or the bytes were changed.
 */
export function reEncryptSecret(
  { from, to }: { readonly from: MasterKey; readonly to: MasterKey },
  context: SecretContext,
  envelope: Envelope,
  random: Random,
): Envelope | undefined {
  const values = openValues(from, context, envelope);
  if (values === undefined) return undefined;
  try {
    return sealValues(to, context, values, random);
  } finally {
    values.fill(0);
  }
}

function sealValues(
  masterKey: MasterKey,
  context: SecretContext,
  values: Uint8Array,
  random: Random,
): Envelope {
  const dataKey = random.bytes(KEY_BYTES);
  try {
    return {
      masterKeyId: masterKey.id,
      wrappedKey: seal(masterKey.bytes, dataKey, toContext('key', context, masterKey.id), random),
      ciphertext: seal(dataKey, values, toContext('values', context, masterKey.id), random),
    };
  } finally {
    dataKey.fill(0);
  }
}

function openValues(
  masterKey: MasterKey,
  context: SecretContext,
  { masterKeyId, wrappedKey, ciphertext }: Envelope,
): Uint8Array | undefined {
  if (masterKeyId !== masterKey.id) return undefined;
  const dataKey = open(masterKey.bytes, wrappedKey, toContext('key', context, masterKeyId));
  if (dataKey === undefined) return undefined;
  try {
    return open(dataKey, ciphertext, toContext('values', context, masterKeyId));
  } finally {
    dataKey.fill(0);
  }
}

function toContext(
  use: string,
  { namespace, name, uid, version }: SecretContext,
  masterKeyId: string,
): Uint8Array {
  return encodeContext('secret', use, namespace, name, uid, String(version), masterKeyId);
}
