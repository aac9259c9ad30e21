import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  MasterKeyRecordSchema,
  MasterKeyRecord_State as State,
  type MasterKeyRecord,
} from '@cloudless/api/store';
import {
  CloudlessError,
  errorKindOf,
  errorMessageOf,
  randomHex,
  type Clock,
  type Random,
} from '@cloudless/base';
import type { ClusterState, ClusterView, Stored } from '@cloudless/cluster-state';
import { KEY_BYTES, type KeyEncryption, type MasterKey, type WrappedKey } from '@cloudless/secrets';

/** Id of the key that authenticates access tokens and repeated requests. */
export const MAC_KEY_ID = 'mac';
/** Random bytes of the id of a master key. */
const ID_BYTES = 6;
/** Attempts to replace the key-encryption key. A rotation of the master key commits twice. */
const MAX_REPLACE_ATTEMPTS = 8;

/** The keys of the cluster, decrypted. */
export interface SecretKeyRing {
  /** Encrypts new versions. */
  readonly active: MasterKey & { readonly stored: Stored<MasterKeyRecord> };
  /** Authenticates access tokens and repeated requests. 32 bytes. */
  readonly mac: Uint8Array;
  /** Returns a key; undefined for an id without a key. */
  get(id: string): MasterKey | undefined;
}

/** Where a coordinator has its key-encryption key from. */
export interface SecretKeysOptions {
  /** Absent: the coordinator has no key-encryption key. */
  readonly current?: KeyEncryption | undefined;
  /** The former key-encryption key, while keys are encrypted with it. */
  readonly previous?: KeyEncryption | undefined;
  /**
   * Why there is no key-encryption key, and what to do, for people. Default: that none was
   * configured.
   */
  readonly problem?: string | undefined;
}

const NOT_CONFIGURED =
  'this coordinator has no key-encryption key; start it with --secrets-key-file, or with CLOUDLESS_SECRETS_KEY';

/**
 * The master keys of the cluster, which are in the store, encrypted with the key-encryption key of
 * this coordinator. Decrypted keys are only in memory.
 */
export class SecretKeys {
  /** Decrypted keys by id, with the revision of their records. */
  private readonly opened = new Map<string, { revision: bigint; bytes: Uint8Array }>();

  constructor(private readonly options: SecretKeysOptions = {}) {}

  /** The ids of the keys that are in memory, decrypted. */
  get openedIds(): readonly string[] {
    return [...this.opened.keys()];
  }

  /**
   * Decrypts the keys of the cluster.
   * @returns Undefined when the cluster has no keys yet.
   * @throws reason `NO_SECRETS_KEY` without the right key-encryption key.
   */
  async open(view: Pick<ClusterView, 'masterKeys'>): Promise<SecretKeyRing | undefined> {
    this.requireKeyEncryption();
    const records = [...view.masterKeys()];
    const byId = new Map<string, MasterKey>();
    for (const stored of records) {
      const { id } = stored.value;
      byId.set(id, { id, bytes: await this.openKey(stored) });
    }
    for (const id of this.opened.keys()) if (!byId.has(id)) this.opened.delete(id);
    const mac = byId.get(MAC_KEY_ID)?.bytes;
    const stored = records.find(({ value }) => isActive(value));
    const active = stored === undefined ? undefined : byId.get(stored.value.id);
    if (mac === undefined || active === undefined || stored === undefined) return undefined;
    return { active: { ...active, stored }, mac, get: (id) => byId.get(id) };
  }

  /**
   * Returns why this coordinator cannot decrypt the keys of the cluster, and what to do, for people;
   * undefined when it can, and when the cluster has no keys yet.
   */
  async findProblem(view: Pick<ClusterView, 'masterKeys'>): Promise<string | undefined> {
    if ([...view.masterKeys()].length === 0) return undefined;
    return this.open(view).then(() => undefined, errorMessageOf);
  }

  /** As {@link open}, for a cluster that must have keys because a secret exists. */
  async require(view: Pick<ClusterView, 'masterKeys'>): Promise<SecretKeyRing> {
    const ring = await this.open(view);
    if (ring !== undefined) return ring;
    throw new CloudlessError('internal', 'the cluster has secrets and no master key');
  }

  /**
   * As {@link open}; creates and commits the first keys of a cluster.
   * @throws the errors of `ClusterState.commit`.
   */
  async openOrCreate(deps: {
    readonly state: ClusterState;
    readonly clock: Clock;
    readonly random: Random;
  }): Promise<SecretKeyRing> {
    const { state, clock, random } = deps;
    const existing = await this.open(state.view());
    if (existing !== undefined) return existing;
    const createdAt = timestampFromMs(clock.wallTime());
    const mac = await this.createKey(MAC_KEY_ID, random);
    const first = await this.createKey(createMasterKeyId(random), random);
    for (const record of [mac, first]) record.createdAt = createdAt;
    first.state = State.ACTIVE;
    // All who create the first keys at the same time conflict at the same record.
    const transaction = state
      .transaction()
      .require('masterkey', MAC_KEY_ID, 'absent')
      .put('masterkey', MAC_KEY_ID, mac)
      .put('masterkey', first.id, first);
    try {
      await state.commit(transaction);
    } catch (reason) {
      if (!(reason instanceof CloudlessError) || reason.kind !== 'conflict') throw reason;
    }
    return this.require(state.view());
  }

  /**
   * Encrypts the keys that need the former key-encryption key with the current one, and commits
   * them. Without a former key, or when no key needs it, nothing is done.
   * @throws the errors of {@link open} and of `ClusterState.commit`.
   */
  async replaceKeyEncryption(state: ClusterState): Promise<void> {
    const { current, previous } = this.options;
    if (current === undefined || previous === undefined) return;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.wrapAll(state, current);
      } catch (reason) {
        // A rotation changes the keys meanwhile. The view shows the change by now.
        if (errorKindOf(reason) !== 'conflict' || attempt >= MAX_REPLACE_ATTEMPTS) throw reason;
      }
    }
  }

  /**
   * Removes keys from memory as soon as the store has them no longer.
   * @returns A function that ends the subscription.
   */
  follow(state: ClusterState): () => void {
    return state.subscribe((changes) => {
      for (const { kind, id, after } of changes)
        if (kind === 'masterkey' && after === undefined) this.opened.delete(id);
    });
  }

  /** Commits all keys that need the former key-encryption key, encrypted with the current one. */
  private async wrapAll(state: ClusterState, current: KeyEncryption): Promise<void> {
    const transaction = state.transaction();
    let count = 0;
    for (const stored of state.view().masterKeys()) {
      const { id } = stored.value;
      if ((await current.unwrap(toWrappedKey(stored.value), id)) !== undefined) continue;
      const next = clone(MasterKeyRecordSchema, stored.value);
      await this.wrapKey(next, await this.openKey(stored));
      transaction.require('masterkey', id, stored).put('masterkey', id, next);
      count += 1;
    }
    if (count > 0) await state.commit(transaction);
  }

  /** Creates the record of a new key, in the state PENDING, without a time. */
  async createKey(id: string, random: Random): Promise<MasterKeyRecord> {
    const record = create(MasterKeyRecordSchema, { id, state: State.PENDING });
    return this.wrapKey(record, random.bytes(KEY_BYTES));
  }

  /**
   * Throws when there is no key-encryption key.
   * @throws reason `NO_SECRETS_KEY`.
   */
  requireKeyEncryption(): KeyEncryption {
    const { current, problem = NOT_CONFIGURED } = this.options;
    if (current !== undefined) return current;
    throw new CloudlessError('NO_SECRETS_KEY', problem);
  }

  /** Encrypts a key with the key-encryption key into its record, which is changed. */
  private async wrapKey(record: MasterKeyRecord, bytes: Uint8Array): Promise<MasterKeyRecord> {
    const wrapped = await this.requireKeyEncryption().wrap(bytes, record.id);
    const { provider, keyId, salt, cost } = wrapped;
    return Object.assign(record, {
      ...{ provider, salt, cost },
      keyEncryptionId: keyId,
      wrappedKey: wrapped.bytes,
    });
  }

  private async openKey({ value, revision }: Stored<MasterKeyRecord>): Promise<Uint8Array> {
    const known = this.opened.get(value.id);
    if (known?.revision === revision) return known.bytes;
    const wrapped = toWrappedKey(value);
    const bytes =
      (await this.requireKeyEncryption().unwrap(wrapped, value.id)) ??
      (await this.options.previous?.unwrap(wrapped, value.id));
    if (bytes === undefined) throw createWrongKeyError(this.requireKeyEncryption(), value);
    this.opened.set(value.id, { revision, bytes });
    return bytes;
  }
}

/** Returns true for the master key that encrypts new versions. */
export function isActive({ id, state }: MasterKeyRecord): boolean {
  return id !== MAC_KEY_ID && state === State.ACTIVE;
}

/** Creates the id of a master key. */
export function createMasterKeyId(random: Random): string {
  return `mk-${randomHex(random, ID_BYTES)}`;
}

function toWrappedKey(record: MasterKeyRecord): WrappedKey {
  const { provider, keyEncryptionId: keyId, salt, cost, wrappedKey: bytes } = record;
  return { provider, keyId, salt, cost, bytes };
}

function createWrongKeyError(
  { provider }: KeyEncryption,
  { provider: needed, keyEncryptionId, id }: MasterKeyRecord,
): CloudlessError {
  // Users do not know the id of the key that authenticates tokens.
  const encrypted = id === MAC_KEY_ID ? 'the keys of the cluster were' : `master key ${id} was`;
  return new CloudlessError(
    'NO_SECRETS_KEY',
    `the key-encryption key of this coordinator (${provider}) is not the key that encrypts the secrets of the cluster: ${encrypted} encrypted with key ${keyEncryptionId} (${needed}); start the coordinator with that key, or with --secrets-previous-key-file`,
  );
}
