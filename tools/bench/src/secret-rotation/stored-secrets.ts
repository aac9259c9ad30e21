// What a data directory holds of secrets, read without a coordinator.
import type {
  MasterKeyRecord,
  MasterKeyRecord_State as State,
  SecretRecord,
} from '@cloudless/api/store';
import { SecretKeys } from '@cloudless/api-server';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import {
  decodeRecord,
  toValueKeyId,
  type RecordKind,
  type RecordOf,
} from '@cloudless/cluster-state';
import { createKeyEncryption, openSecret, type SecretData } from '@cloudless/secrets';
import type { StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';

/** A kept version of a secret. */
export interface StoredVersion {
  /** `<namespace>/<name>`. */
  readonly secret: string;
  readonly version: number;
  readonly isNewest: boolean;
  /** Id of the master key that the record of the secret names. */
  readonly recordKeyId: string;
  /** Id of the master key that the record of the values names; undefined without such a record. */
  readonly valueKeyId: string | undefined;
  /** The decrypted values; undefined when they cannot be decrypted. */
  readonly data: SecretData | undefined;
}

/** The secrets and master keys of a data directory. */
export interface StoredSecrets {
  readonly keys: readonly { readonly id: string; readonly state: State }[];
  readonly versions: readonly StoredVersion[];
  /** Number of value records that belong to no version. */
  readonly orphans: number;
}

/** Records of a kind by id, with the encoded form. */
type Records<Kind extends RecordKind> = ReadonlyMap<string, RecordOf<Kind>>;

/** Id of the key that is no master key. */
const MAC_KEY_ID = 'mac';

/**
 * Reads and decrypts all secrets of a data directory. No coordinator may run on it.
 * @param keyEncryptionKey - 32 bytes.
 */
export async function readStoredSecrets(
  directory: string,
  keyEncryptionKey: Uint8Array,
): Promise<StoredSecrets> {
  const store = await openLmdbStateStore({ directory, clock: systemClock });
  try {
    const masterKeys = await readRecords(store, 'masterkey');
    const secrets = await readRecords(store, 'secret');
    const values = await readRecords(store, 'secretvalue');
    const ring = await openRing(masterKeys, keyEncryptionKey);
    const versions = [...secrets.values()].flatMap((record) =>
      record.versions.map(({ version, masterKeyId }): StoredVersion => {
        const value = values.get(toValueKeyId(record.uid, version));
        const key = value && ring?.get(value.masterKeyId);
        return {
          ...{ secret: `${record.namespace}/${record.name}`, version },
          isNewest: version === record.version,
          recordKeyId: masterKeyId,
          valueKeyId: value?.masterKeyId,
          data: value && key && openSecret(key, toContext(record, version), value),
        };
      }),
    );
    const keys = [...masterKeys.values()].filter(({ id }) => id !== MAC_KEY_ID);
    const known = versions.filter(({ valueKeyId }) => valueKeyId !== undefined).length;
    return { keys, versions, orphans: values.size - known };
  } finally {
    await store.close();
  }
}

/** Damages a data directory on purpose, so that a run shows that its checks notice. */
export const INJECTIONS = {
  /** The values of one secret are those of another. */
  'swapped-value': (entries) => {
    const [first, second] = entries.filter(({ key }) => key.startsWith('/secretvalue/'));
    return first && second && { put: first.key, value: second.value };
  },
  /** One value is lost. */
  'lost-value': (entries) => {
    const value = entries.find(({ key }) => key.startsWith('/secretvalue/'));
    return value && { delete: value.key };
  },
  /** A retired key is still there. */
  'old-key': (entries) => {
    const key = entries.find(({ key: text }) => text.startsWith('/masterkey/mk-'));
    return key && { put: `${key.key}0`, value: key.value };
  },
} satisfies Readonly<Record<string, (entries: readonly Entry[]) => Write | undefined>>;

interface Entry {
  readonly key: string;
  readonly value: Uint8Array;
}
type Write = Parameters<StateStore['txn']>[1][number];

/** Changes the data directory as one of {@link INJECTIONS} says. */
export async function injectViolation(
  directory: string,
  injection: keyof typeof INJECTIONS,
): Promise<void> {
  const store = await openLmdbStateStore({ directory, clock: systemClock });
  try {
    const write = INJECTIONS[injection](await readEntries(store, '/'));
    if (write === undefined)
      throw new Error(`the data directory has no record for --inject ${injection}`);
    await store.txn([], [write]);
  } finally {
    await store.close();
  }
}

function toContext({ namespace, name, uid }: SecretRecord, version: number) {
  return { namespace, name, uid, version };
}

async function openRing(masterKeys: Records<'masterkey'>, keyEncryptionKey: Uint8Array) {
  const current = createKeyEncryption('file', keyEncryptionKey, systemRandom);
  const stored = [...masterKeys.values()].map((value: MasterKeyRecord) => ({
    ...{ value, revision: 0n },
  }));
  return new SecretKeys({ current }).open({ masterKeys: () => stored });
}

async function readRecords<Kind extends RecordKind>(
  store: StateStore,
  kind: Kind,
): Promise<Records<Kind>> {
  const prefix = `/${kind}/`;
  const records = new Map<string, RecordOf<Kind>>();
  for (const { key, value } of await readEntries(store, prefix)) {
    const id = key.slice(prefix.length);
    records.set(id, decodeRecord(kind, id, value));
  }
  return records;
}

async function readEntries(store: StateStore, prefix: string): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  let after: string | undefined;
  do {
    const page = await store.range({ prefix, ...(after === undefined ? {} : { after }) });
    entries.push(...page.entries);
    after = page.next;
  } while (after !== undefined);
  return entries;
}
