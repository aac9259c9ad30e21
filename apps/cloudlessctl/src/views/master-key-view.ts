import {
  MasterKey_State as State,
  type GetMasterKeyInfoResponse,
  type MasterKey,
  type RotateMasterKeyResponse,
} from '@cloudless/api';
import { formatAge, formatCount, formatWord } from '../output/human.js';
import { getToneColour, type Style } from '../output/style.js';
import { formatTable } from '../output/table.js';

/** Formats master keys, oldest first, and how far a rotation is. */
export function formatMasterKeys(
  { keys, rotating, remaining }: GetMasterKeyInfoResponse,
  nowMs: number,
  style: Style,
): string {
  const table = formatTable(
    [
      'ID',
      'STATE',
      'VERSIONS',
      { header: 'AGE', dropOrder: 2 },
      'PROVIDER',
      { header: 'ENCRYPTED WITH', dropOrder: 1 },
    ],
    keys.map((key) => [
      key.id,
      { text: formatWord(State[key.state] ?? ''), paint: getToneColour(style, toTone(key)) },
      String(key.versionCount),
      formatAge(key.createdAt, nowMs),
      key.provider,
      key.keyEncryptionId,
    ]),
    style,
  );
  return rotating
    ? `${table}\nA rotation is under way: ${describeCount(remaining, 'version')} left.\n`
    : table;
}

function toTone({ state }: MasterKey): 'good' | 'busy' | 'quiet' {
  return state === State.ACTIVE ? 'good' : state === State.PENDING ? 'busy' : 'quiet';
}

/** Returns the number of versions that all master keys together encrypt. */
export function countVersions({ keys }: GetMasterKeyInfoResponse): number {
  return Number(keys.reduce((sum, { versionCount }) => sum + versionCount, 0n));
}

/** Describes what a rotation does, before the question. */
export function explainRotation(before: GetMasterKeyInfoResponse, reEncryptAll: boolean): string {
  if (before.rotating)
    return `A rotation is under way, with ${describeCount(before.remaining, 'version')} left. The command begins no second rotation.`;
  const versions = formatCount(countVersions(before), 'kept version');
  const old = reEncryptAll
    ? `The ${versions} are encrypted again with the new key; then the older master keys are deleted.`
    : `The ${versions} stay encrypted with the older master keys, which are kept.`;
  return `A new master key encrypts the secrets from now on. ${old} No value, version or workload changes.`;
}

/** Describes a rotation that has ended. */
export function describeRotation({
  masterKeyId,
  began,
  reEncrypted,
  remaining,
  deletedKeys,
}: RotateMasterKeyResponse): string {
  const counts = [
    `${describeCount(reEncrypted, 'version')} encrypted again`,
    `${formatCount(deletedKeys, 'older key')} deleted`,
    ...(remaining === 0n
      ? []
      : [`${describeCount(remaining, 'version')} still encrypted with older keys`]),
  ].join(', ');
  const origin = began ? '' : ' (the rotation had begun before this command)';
  return `master key ${masterKeyId} is active: ${counts}${origin}`;
}

function describeCount(count: bigint, noun: string): string {
  return formatCount(Number(count), noun);
}
