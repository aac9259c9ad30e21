import { toBinary } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { SecretVersion } from '@cloudless/api';
import {
  MasterKeyRecord_State as State,
  SecretRecordSchema,
  type MasterKeyRecord,
  type SecretRecord,
} from '@cloudless/api/store';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { MAC_KEY_ID } from './secret-keys.js';

/**
 * Writes of a step at most. A store accepts 100 writes and 100 compares; the compares are the records
 * of the batch, the leader and the active key.
 */
export const MAX_STEP_WRITES = 90;
/** Estimated bytes of a step, unless its first version has more. Far below the 1 MiB of a store. */
const MAX_STEP_BYTES = 512 * 1024;
/** Bytes of a value record beside keys and values: nonces, tags, the data key, lengths. */
const VALUE_OVERHEAD_BYTES = 256;

/** The part of a view that decides about master keys. */
export type MasterKeyView = Pick<ClusterView, 'masterKeys' | 'secretsByName'>;

/** Versions of one secret that are encrypted again in one step. */
export interface VersionBatch {
  readonly secret: Stored<SecretRecord>;
  /** Numbers of the versions, at least one. */
  readonly versions: readonly number[];
}

/** The next step of the life of master keys. Each step is one commit. */
export type MasterKeyStep =
  /** Nothing is to be done until records change. */
  | { readonly kind: 'none' }
  /** `key` encrypts new versions from now on; the keys `former` only decrypt. */
  | {
      readonly kind: 'activate';
      readonly key: Stored<MasterKeyRecord>;
      readonly former: readonly Stored<MasterKeyRecord>[];
    }
  /** Versions are encrypted again with the key `to`. */
  | {
      readonly kind: 'reEncrypt';
      readonly to: Stored<MasterKeyRecord>;
      readonly batches: readonly VersionBatch[];
    }
  /** Only versions that cannot be decrypted keep a rotation from its end. */
  | { readonly kind: 'blocked'; readonly versions: readonly VersionBatch[] }
  /** No version needs the keys. */
  | {
      readonly kind: 'deleteKeys';
      readonly keys: readonly Stored<MasterKeyRecord>[];
      /** The key of the rotation that ends with this step. Absent: the keys are left from before. */
      readonly endOf?: Stored<MasterKeyRecord>;
    };

export interface MasterKeyStepOptions {
  /**
   * `<namespace>/<name>` of the secret after which the search for versions begins, where the step
   * before has ended. The step is the same without it, but costs more. Default: the first secret.
   */
  readonly after?: string | undefined;
  /** Writes of the step at most, at least 2. Default: {@link MAX_STEP_WRITES}. */
  readonly maxWrites?: number;
  /** Returns true for a version that cannot be decrypted. Default: all can. */
  readonly isDamaged?: (secret: SecretRecord, version: number) => boolean;
}

/**
 * Decides the next step. Pure: a rotation continues with the same steps after a crash or a change of
 * the leader. The steps are: the new key becomes ACTIVE and the former one RETIRING; with
 * `re_encrypt_all`, all versions of other keys are encrypted again; keys without a version are
 * deleted. No new version can use a RETIRING key, because `putVersion` compares the record of the
 * active key, so a key without a version stays so.
 */
export function planMasterKeyStep(
  view: MasterKeyView,
  options: MasterKeyStepOptions = {},
): MasterKeyStep {
  const { pending, active, retiring } = listByState(view);
  const [key] = pending;
  if (key !== undefined) return { kind: 'activate', key, former: active };
  const [to] = active;
  if (to === undefined || retiring.length === 0) return { kind: 'none' };
  if (!to.value.reEncryptAll) {
    const unused = findUnusedKeys(view, retiring);
    return unused.length === 0 ? { kind: 'none' } : { kind: 'deleteKeys', keys: unused };
  }
  const { batches, damaged } = findOldVersions(view, to.value.id, options);
  if (batches.length > 0) return { kind: 'reEncrypt', to, batches };
  if (damaged.length > 0) return { kind: 'blocked', versions: damaged };
  return { kind: 'deleteKeys', keys: retiring, endOf: to };
}

/** Returns the master keys, oldest first. The key `mac` is none. */
export function listMasterKeys(
  view: Pick<ClusterView, 'masterKeys'>,
): readonly Stored<MasterKeyRecord>[] {
  const keys = [...view.masterKeys()].filter(({ value }) => value.id !== MAC_KEY_ID);
  const toMs = ({ value: { createdAt } }: Stored<MasterKeyRecord>): number =>
    createdAt === undefined ? 0 : timestampMs(createdAt);
  return keys.sort(
    (left, right) =>
      // Clocks differ: a retiring key is older than the active one, a new key is the youngest.
      right.value.state - left.value.state ||
      toMs(left) - toMs(right) ||
      (left.value.id < right.value.id ? -1 : 1),
  );
}

/**
 * Returns the key of the rotation that is under way; undefined when none is. A rotation without
 * `re_encrypt_all` ends when its key is active.
 */
export function findRotation(
  view: Pick<ClusterView, 'masterKeys'>,
): Stored<MasterKeyRecord> | undefined {
  const { pending, active, retiring } = listByState(view);
  if (pending[0] !== undefined) return pending[0];
  return retiring.length === 0 ? undefined : active.find(({ value }) => value.reEncryptAll);
}

/** Counts the kept versions of all secrets by the id of the master key that encrypts them. */
export function countVersions(
  view: Pick<ClusterView, 'secretsByName'>,
): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { value } of view.secretsByName())
    for (const { masterKeyId } of value.versions)
      counts.set(masterKeyId, (counts.get(masterKeyId) ?? 0) + 1);
  return counts;
}

/** Counts the versions that other master keys than this one encrypt. */
export function countOtherVersions(
  view: Pick<ClusterView, 'secretsByName'>,
  masterKeyId: string,
): number {
  let count = 0;
  for (const [id, versions] of countVersions(view)) if (id !== masterKeyId) count += versions;
  return count;
}

interface KeysByState {
  readonly pending: readonly Stored<MasterKeyRecord>[];
  readonly active: readonly Stored<MasterKeyRecord>[];
  readonly retiring: readonly Stored<MasterKeyRecord>[];
}

function listByState(view: Pick<ClusterView, 'masterKeys'>): KeysByState {
  const keys = listMasterKeys(view);
  const list = (state: State): readonly Stored<MasterKeyRecord>[] =>
    keys.filter(({ value }) => value.state === state);
  return {
    pending: list(State.PENDING),
    active: list(State.ACTIVE),
    retiring: list(State.RETIRING),
  };
}

/** Returns the keys that no version needs. Stops as soon as each key has a version. */
function findUnusedKeys(
  view: Pick<ClusterView, 'secretsByName'>,
  keys: readonly Stored<MasterKeyRecord>[],
): readonly Stored<MasterKeyRecord>[] {
  const unused = new Map(keys.map((key) => [key.value.id, key]));
  for (const { value } of view.secretsByName()) {
    for (const { masterKeyId } of value.versions) unused.delete(masterKeyId);
    if (unused.size === 0) break;
  }
  return [...unused.values()];
}

/**
 * Returns versions of other keys than `masterKeyId` for one step, by the name of their secret, and,
 * when there are none, those that are damaged.
 */
function findOldVersions(
  view: Pick<ClusterView, 'secretsByName'>,
  masterKeyId: string,
  { after, maxWrites = MAX_STEP_WRITES, isDamaged = () => false }: MasterKeyStepOptions,
): { readonly batches: readonly VersionBatch[]; readonly damaged: readonly VersionBatch[] } {
  const damaged: VersionBatch[] = [];
  const budget = { writes: maxWrites, bytes: MAX_STEP_BYTES };
  const batches: VersionBatch[] = [];
  for (const secret of listSecretsFrom(view, after)) {
    const old = secret.value.versions.filter((version) => version.masterKeyId !== masterKeyId);
    if (old.length === 0) continue;
    const isOpenable = ({ version }: SecretVersion): boolean => !isDamaged(secret.value, version);
    const openable = old.filter(isOpenable);
    if (openable.length < old.length)
      damaged.push({
        secret,
        versions: old.filter((version) => !isOpenable(version)).map(({ version }) => version),
      });
    if (openable.length === 0) continue;
    const isFirst = batches.length === 0;
    const versions = takeVersions(secret.value, openable, budget, isFirst);
    if (versions.length > 0) batches.push({ secret, versions });
    if (versions.length < openable.length) break;
  }
  return { batches, damaged };
}

/** Takes versions of one secret while the budget lasts, and the first version of a step anyway. */
function takeVersions(
  secret: SecretRecord,
  versions: readonly SecretVersion[],
  budget: { writes: number; bytes: number },
  isFirst: boolean,
): readonly number[] {
  const taken: number[] = [];
  budget.writes -= 1;
  budget.bytes -= toBinary(SecretRecordSchema, secret).length;
  for (const version of versions) {
    budget.writes -= 1;
    budget.bytes -= estimateValueBytes(version);
    const fits = budget.writes >= 0 && budget.bytes >= 0;
    if (!fits && !(isFirst && taken.length === 0)) break;
    taken.push(version.version);
  }
  return taken;
}

function estimateValueBytes({ sizes }: SecretVersion): number {
  let bytes = VALUE_OVERHEAD_BYTES;
  for (const [key, size] of Object.entries(sizes)) bytes += key.length + size + 8;
  return bytes;
}

/** Yields all secrets by name, beginning behind `after`. */
function* listSecretsFrom(
  view: Pick<ClusterView, 'secretsByName'>,
  after: string | undefined,
): Generator<Stored<SecretRecord>, void> {
  yield* view.secretsByName(after);
  if (after === undefined) return;
  for (const secret of view.secretsByName()) {
    if (`${secret.value.namespace}/${secret.value.name}` > after) return;
    yield secret;
  }
}
