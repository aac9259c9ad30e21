import { Role, UserCredential_Kind as CredentialKind } from '@cloudless/api';
import type { RoleGrant, User, UserCredential } from '@cloudless/api';
import { formatAge } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell } from '../output/table.js';
import { timestampMs } from '../output/timestamp.js';
import { describeLoginEnd, formatExpiry } from './expiry.js';

/**
 * Formats a role: `operator in shop`, or `admin of the cluster` for a role in every namespace.
 */
export function formatGrant({ role, namespace }: RoleGrant): string {
  const name = Role[role].toLowerCase();
  return namespace === '' ? `${name} of the cluster` : `${name} in ${namespace}`;
}

/** Formats roles as a list: `viewer of the cluster, operator in shop`. Empty without roles. */
export function formatGrants(grants: readonly RoleGrant[]): string {
  return grants.map(formatGrant).join(', ');
}

/** Formats users as a table. */
export function formatUserTable(users: readonly User[], nowMs: number, style: Style): string {
  return formatTable(
    ['NAME', { header: 'ROLES', fit: 'wrap' }, { header: 'AGE', dropOrder: 1 }],
    users.map(({ name, grants, createdAt }) => [
      name,
      grants.length === 0 ? { text: 'none', paint: style.yellow } : formatGrants(grants),
      formatAge(createdAt, nowMs),
    ]),
    style,
  );
}

/** Formats the tokens and certificates of a user as a table. */
export function formatCredentialTable(
  credentials: readonly UserCredential[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      'ID',
      'KIND',
      'STATE',
      { header: 'AGE', dropOrder: 2 },
      { header: 'CREATED BY', dropOrder: 1 },
      ...(wide ? ['TOKEN'] : []),
      { header: 'DESCRIPTION', fit: 'wrap' as const },
    ],
    credentials.map((credential) => [
      credential.id,
      formatCredentialKind(credential.kind),
      formatState(credential, nowMs, style),
      formatAge(credential.createdAt, nowMs),
      credential.createdBy,
      ...(wide ? [credential.tokenId] : []),
      credential.description,
    ]),
    style,
    { wide },
  );
}

/** Formats the form of a credential: `token` or `certificate`. */
export function formatCredentialKind(kind: CredentialKind): string {
  return kind === CredentialKind.KIND_UNSPECIFIED ? 'unknown' : CredentialKind[kind].toLowerCase();
}

function formatState(
  { expiresAt, certificateExpiresAt, revokedAt }: UserCredential,
  nowMs: number,
  style: Style,
): Cell | string {
  if (revokedAt !== undefined)
    return { text: `revoked ${formatAge(revokedAt, nowMs)} ago`, paint: style.dim };
  if (certificateExpiresAt === undefined) return formatExpiry(expiresAt, nowMs, style);
  const endMs = timestampMs(certificateExpiresAt);
  const text = describeLoginEnd(endMs, expiresAt && timestampMs(expiresAt), nowMs);
  return endMs <= nowMs ? { text, paint: style.red } : text;
}
