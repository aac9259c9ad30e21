import type { SecretRecord } from '@cloudless/api/store';
import { CloudlessError, type Clock } from '@cloudless/base';
import {
  toValueKeyId,
  type ClusterState,
  type ClusterView,
  type Stored,
} from '@cloudless/cluster-state';
import { openSecret, type SecretData } from '@cloudless/secrets';
import type { SecretKeys } from './secret-keys.js';
import { requireSecret, requireUnexpired, toSecretKey } from './secret-lookup.js';

/** The values of one version of a secret. */
export interface SecretVersionValues {
  readonly uid: string;
  /** Number of the version. */
  readonly version: number;
  readonly data: SecretData;
}

/** Reads the values of secrets. The caller has checked that they may be given out. */
export interface SecretValues {
  /**
   * Reads and decrypts the values of one version.
   * @param version - 0: the newest version.
   * @throws reason `SECRET_NOT_FOUND` without such a secret or version; `SECRET_EXPIRED`;
   *   `NO_SECRETS_KEY` without the right key-encryption key.
   */
  read(
    view: ClusterView,
    namespace: string,
    name: string,
    version: number,
  ): Promise<SecretVersionValues>;
}

/** Attempts to read a value that a rotation encrypts again meanwhile. */
const MAX_READS = 4;

/** Implements {@link SecretValues} over the store. */
export class StoredSecretValues implements SecretValues {
  constructor(
    private readonly deps: {
      readonly state: ClusterState;
      readonly clock: Clock;
      readonly keys: SecretKeys;
    },
  ) {}

  async read(
    view: ClusterView,
    namespace: string,
    name: string,
    version: number,
  ): Promise<SecretVersionValues> {
    const { value: record } = requireSecret(view, { namespace, name });
    requireUnexpired(record, this.deps.clock.wallTime());
    const wanted = version === 0 ? record.version : version;
    const data = await this.readData(view, record, wanted);
    return { uid: record.uid, version: wanted, data };
  }

  /**
   * Decrypts the values of a version of a secret, also when the secret has expired.
   * @throws reason `SECRET_NOT_FOUND` for a version that is not kept; `NO_SECRETS_KEY`.
   */
  async readData(
    view: ClusterView,
    record: Stored<SecretRecord>['value'],
    version: number,
  ): Promise<SecretData> {
    const { state, keys } = this.deps;
    const { namespace, name, uid } = record;
    const what = `version ${version} of secret "${toSecretKey(record)}"`;
    for (let attempt = 1; ; attempt += 1) {
      keys.requireKeyEncryption();
      const stored = await state.readRecord('secretvalue', toValueKeyId(uid, version));
      if (stored === undefined)
        throw new CloudlessError('SECRET_NOT_FOUND', `${what} does not exist, or is not kept`);
      const ring = await keys.require(view);
      const masterKey = ring.get(stored.value.masterKeyId);
      if (masterKey === undefined && attempt < MAX_READS) {
        // The view may not show a new master key yet.
        await state.waitForRevision(stored.revision);
        continue;
      }
      const data =
        masterKey && openSecret(masterKey, { namespace, name, uid, version }, stored.value);
      if (data !== undefined) return data;
      throw new CloudlessError(
        'internal',
        `${what} cannot be decrypted with master key ${stored.value.masterKeyId}: the record was changed or damaged; delete the secret, or restore a backup`,
      );
    }
  }
}
