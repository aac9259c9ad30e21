import { createHmac, scrypt } from 'node:crypto';
import { CloudlessError, type Random } from '@cloudless/base';
import { KEY_BYTES, encodeContext, open, seal } from './aead.js';

/** A key of the store, encrypted with a key outside of the store. */
export interface WrappedKey {
  /** Kind of the key-encryption key: `file`, `environment`, `passphrase`, or that of a KMS. */
  readonly provider: string;
  /** Names the key-encryption key, so that another key is told apart from damaged bytes. */
  readonly keyId: string;
  /** Salt of a passphrase; empty for other keys. */
  readonly salt: Uint8Array;
  /** Cost of a passphrase, as `N` of scrypt; 0 for other keys. */
  readonly cost: number;
  readonly bytes: Uint8Array;
}

/**
 * A key-encryption key (KEK), which encrypts the keys in the store and is never stored there. A key
 * management service implements this interface with its own calls.
 */
export interface KeyEncryption {
  /** See {@link WrappedKey}. */
  readonly provider: string;
  /**
   * Encrypts a key.
   * @param name - Name of the key, such as the id of a master key. Only the same name decrypts it.
   */
  wrap(key: Uint8Array, name: string): Promise<WrappedKey>;
  /**
   * Decrypts a key.
   * @returns Undefined when the key was encrypted with another key-encryption key.
   * @throws {@link CloudlessError} of kind `internal` when the bytes were changed; `unavailable`
   *   when a key management service does not answer.
   */
  unwrap(wrapped: WrappedKey, name: string): Promise<Uint8Array | undefined>;
}

/**
 * Creates a key-encryption key from 32 bytes.
 * @param provider - Where the bytes are from.
 */
export function createKeyEncryption(
  provider: 'file' | 'environment',
  bytes: Uint8Array,
  random: Random,
): KeyEncryption {
  const keyId = createKeyId(bytes);
  return {
    provider,
    wrap: async (key, name) => ({
      ...{ provider, keyId, salt: new Uint8Array(), cost: 0 },
      bytes: seal(bytes, key, toContext(name), random),
    }),
    unwrap: async (wrapped, name) =>
      wrapped.keyId === keyId ? openKey(bytes, wrapped, name) : undefined,
  };
}

/** Default cost (`N`) of scrypt: 128 MiB and about half a second for each salt. */
const PASSPHRASE_COST = 2 ** 17;
/** Largest cost that is accepted from the store: 1 GiB. */
const MAX_COST = 2 ** 20;
const SALT_BYTES = 16;
/** Parameter `r` of scrypt. @see RFC 7914, section 2 */
const BLOCK_SIZE = 8;
/** Memory that scrypt may use, bytes: the 128 * N * r that it needs, and 1 MiB to spare. */
const toMaxMemory = (cost: number): number => 128 * cost * BLOCK_SIZE + 2 ** 20;

/**
 * Creates a key-encryption key that is derived from a passphrase with scrypt, once for each salt.
 * @param cost - `N` of scrypt, a power of 2. Default 2^17: 128 MiB and about half a second.
 */
export function createPassphraseEncryption(
  passphrase: string,
  random: Random,
  cost: number = PASSPHRASE_COST,
): KeyEncryption {
  const provider = 'passphrase';
  const derived = new Map<string, Promise<Uint8Array>>();
  const derive = (salt: Uint8Array, saltCost: number): Promise<Uint8Array> => {
    const id = `${saltCost} ${Buffer.from(salt).toString('hex')}`;
    const key = derived.get(id) ?? deriveKey(passphrase, salt, saltCost);
    derived.set(id, key);
    return key;
  };
  /** Salt of new encryptions: the salt of the stored keys, if their cost is current. */
  let ownSalt: Uint8Array | undefined;
  return {
    provider,
    wrap: async (key, name) => {
      ownSalt ??= random.bytes(SALT_BYTES);
      const bytes = await derive(ownSalt, cost);
      return {
        ...{ provider, keyId: createKeyId(bytes), salt: ownSalt, cost },
        bytes: seal(bytes, key, toContext(name), random),
      };
    },
    unwrap: async (wrapped, name) => {
      if (wrapped.provider !== provider || !(wrapped.cost > 1) || wrapped.cost > MAX_COST)
        return undefined;
      const bytes = await derive(wrapped.salt, wrapped.cost);
      if (wrapped.keyId !== createKeyId(bytes)) return undefined;
      ownSalt ??= wrapped.cost === cost ? wrapped.salt : undefined;
      return openKey(bytes, wrapped, name);
    },
  };
}

function openKey(bytes: Uint8Array, wrapped: WrappedKey, name: string): Uint8Array {
  const key = open(bytes, wrapped.bytes, toContext(name));
  if (key !== undefined) return key;
  throw new CloudlessError(
    'internal',
    `the stored key ${name} is damaged: its key-encryption key does not decrypt it; restore a backup`,
  );
}

/** Returns the id by which a key is recognised. The id does not help to find the key. */
function createKeyId(bytes: Uint8Array): string {
  return createHmac('sha256', bytes).update('cloudless key check').digest('hex').slice(0, 16);
}

function toContext(name: string): Uint8Array {
  return encodeContext('key', name);
}

function deriveKey(passphrase: string, salt: Uint8Array, cost: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const options = { N: cost, r: BLOCK_SIZE, p: 1, maxmem: toMaxMemory(cost) };
    scrypt(passphrase.normalize('NFC'), salt, KEY_BYTES, options, (error, key) => {
      if (error === null) resolve(new Uint8Array(key));
      else reject(error);
    });
  });
}
