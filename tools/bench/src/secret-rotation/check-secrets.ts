import { MasterKeyRecord_State as State } from '@cloudless/api/store';
import type { StoredSecrets, StoredVersion } from './stored-secrets.js';

/** Key of the value of every secret of a run. */
export const VALUE_KEY = 'password';
/** Violations that are listed of one kind; the number of all is in the text. */
const MAX_LISTED = 3;

/** The step at which a rotation is. */
export type RotationMoment = 'none' | 'pending' | 'active' | 'middle' | 'unused';

/**
 * Checks that every acknowledged value can be read, at any moment of a rotation.
 * @param expected - Value of each secret, by `<namespace>/<name>`.
 * @returns Violations, as texts. Empty: all checks held.
 */
export function checkReadable(
  { versions, keys, orphans }: StoredSecrets,
  expected: ReadonlyMap<string, string>,
): readonly string[] {
  const newest = new Map(
    versions.filter(({ isNewest }) => isNewest).map((version) => [version.secret, version]),
  );
  const missing = [...expected.keys()].filter((secret) => !newest.has(secret));
  const unreadable = versions.filter(({ data }) => data === undefined);
  const wrong = [...expected].filter(([secret, value]) => {
    const data = newest.get(secret)?.data;
    return data !== undefined && Buffer.from(data.get(VALUE_KEY) ?? []).toString() !== value;
  });
  const active = keys.filter(({ state }) => state === State.ACTIVE).length;
  return [
    ...describe('secrets are missing', missing),
    ...describe('versions cannot be decrypted', unreadable.map(describeVersion)),
    ...describe(
      'secrets have another value',
      wrong.map(([secret]) => secret),
    ),
    ...(active === 1 ? [] : [`${active} master keys are active, must be 1`]),
    ...(orphans === 0 ? [] : [`${orphans} values belong to no version, must be 0`]),
  ];
}

/**
 * Checks that nothing is left of the keys before a rotation.
 * @returns Violations, as texts. Empty: all checks held.
 */
export function checkRotated({ versions, keys }: StoredSecrets): readonly string[] {
  const active = keys.find(({ state }) => state === State.ACTIVE)?.id;
  const old = versions.filter(
    ({ recordKeyId, valueKeyId }) => recordKeyId !== active || valueKeyId !== active,
  );
  return [
    ...describe('versions are under an older master key', old.map(describeVersion)),
    ...(keys.length === 1 ? [] : [`${keys.length} master keys are stored, must be 1`]),
  ];
}

/** Returns the moment of a rotation at which a coordinator has ended. */
export function findMoment({ versions, keys }: StoredSecrets): RotationMoment {
  if (keys.some(({ state }) => state === State.PENDING)) return 'pending';
  if (keys.length < 2) return 'none';
  const active = keys.find(({ state }) => state === State.ACTIVE)?.id;
  const rotated = versions.filter(({ recordKeyId }) => recordKeyId === active).length;
  if (rotated === 0) return 'active';
  return rotated === versions.length ? 'unused' : 'middle';
}

/** Number of versions that a rotation has not encrypted again yet. */
export function countRemaining({ versions, keys }: StoredSecrets): number {
  const active = keys.find(({ state }) => state === State.ACTIVE)?.id;
  return versions.filter(({ recordKeyId }) => recordKeyId !== active).length;
}

function describe(text: string, names: readonly string[]): readonly string[] {
  if (names.length === 0) return [];
  return [`${names.length} ${text}: ${names.slice(0, MAX_LISTED).join(', ')}`];
}

function describeVersion({ secret, version, valueKeyId }: StoredVersion): string {
  return `version ${version} of ${secret} (master key ${valueKeyId ?? 'unknown, no value'})`;
}
