import { clone, create } from '@bufbuild/protobuf';
import { durationMs, timestampMs, type Duration } from '@bufbuild/protobuf/wkt';
import {
  Role,
  RoleGrantSchema,
  UserCredentialSchema,
  UserSchema,
  type RoleGrant,
  type User,
  type UserCredential,
} from '@cloudless/api';
import { UserRecordSchema, type CredentialRecord, type UserRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { isAtOrAfter } from '../access/is-at-or-after.js';
import { ROLE_NAMES } from '../access/role-names.js';

/** Roles of one user. More are refused, so that the check of a role stays short. */
const MAX_GRANTS = 64;

/** A role and the namespace, empty for the whole cluster, in which a user gets or loses the role. */
export interface RequestedGrant {
  readonly role: Role;
  readonly namespace: string;
}

/** @throws kind `notFound`. */
export function requireUser(view: ClusterView, name: string): Stored<UserRecord> {
  const stored = view.user(name);
  if (stored !== undefined) return stored;
  throw new CloudlessError('USER_NOT_FOUND', `user "${name}" not found`);
}

/** @throws kind `invalid` for an unspecified role. */
export function checkRole(role: Role): void {
  if (ROLE_NAMES[role] !== undefined) return;
  throw new InvalidInputError([
    { field: 'role', message: 'is required: VIEWER, OPERATOR or ADMIN' },
  ]);
}

/**
 * Returns a record with one more role; undefined when the user has the role already.
 * @throws kind `exhausted` for too many roles.
 */
export function addGrant(record: UserRecord, grant: RequestedGrant): UserRecord | undefined {
  const grants = record.user?.grants ?? [];
  if (grants.some((other) => isSameGrant(other, grant))) return undefined;
  if (grants.length >= MAX_GRANTS) {
    throw new CloudlessError(
      'LIMIT_REACHED',
      `user "${record.user?.name}" has ${MAX_GRANTS} roles; revoke some of them first`,
    );
  }
  const { role, namespace } = grant;
  return withGrants(record, [...grants, create(RoleGrantSchema, { role, namespace })]);
}

/**
 * Returns a record without a role; undefined when the user does not have the role.
 * @throws kind `precondition` when the whole cluster would have no admin any more.
 */
export function removeGrant(
  view: ClusterView,
  record: UserRecord,
  grant: RequestedGrant,
): UserRecord | undefined {
  const grants = record.user?.grants ?? [];
  const remaining = grants.filter((other) => !isSameGrant(other, grant));
  if (remaining.length === grants.length) return undefined;
  const changed = withGrants(record, remaining);
  if (isClusterAdmin(record) && !isClusterAdmin(changed)) requireAnotherAdmin(view, record);
  return changed;
}

/**
 * Checks that another user is admin of the whole cluster.
 * @throws kind `precondition`.
 */
export function requireAnotherAdmin(view: ClusterView, { user }: UserRecord): void {
  for (const { value } of view.users())
    if (value.user?.name !== user?.name && isClusterAdmin(value)) return;
  throw new CloudlessError(
    'LAST_ADMIN',
    `user "${user?.name}" is the last admin of the whole cluster; make another user admin first`,
  );
}

export function isClusterAdmin({ user }: UserRecord): boolean {
  return (user?.grants ?? []).some((grant) => grant.role === Role.ADMIN && grant.namespace === '');
}

/** Returns a user with only the roles in visible namespaces. */
export function presentUser({ user }: UserRecord, isVisible: (namespace: string) => boolean): User {
  const shown = user === undefined ? create(UserSchema) : clone(UserSchema, user);
  shown.grants = shown.grants.filter(({ namespace }) => isVisible(namespace));
  return shown;
}

/** Returns a credential as the API shows it: with the end of its newest certificate. */
export function presentCredential({
  credential,
  current,
}: CredentialRecord): UserCredential | undefined {
  const { notAfter: certificateExpiresAt } = current ?? {};
  if (credential === undefined || certificateExpiresAt === undefined) return credential;
  return { ...clone(UserCredentialSchema, credential), certificateExpiresAt };
}

const MIN_LIFETIME_MS = 1_000;
const DAY_MS = 24 * 60 * 60 * 1_000;
const MAX_LIFETIME_MS = 5 * 365 * DAY_MS;
const DEFAULT_LIFETIME_MS = 90 * DAY_MS;

/**
 * Returns the time at which a new token expires, wall-clock milliseconds.
 * @param lifetime - Undefined: 90 days, or until `limitMs`.
 * @param limitMs - The latest expiry that the caller may choose. Infinity: none.
 * @throws kind `invalid` for a lifetime out of range or beyond the limit.
 */
export function computeExpiry(
  lifetime: Duration | undefined,
  nowMs: number,
  limitMs: number,
): number {
  if (lifetime === undefined) return Math.min(nowMs + DEFAULT_LIFETIME_MS, limitMs);
  const lifetimeMs = durationMs(lifetime);
  const reject = (message: string): never => {
    throw new InvalidInputError([{ field: 'lifetime', message }]);
  };
  if (!(lifetimeMs >= MIN_LIFETIME_MS && lifetimeMs <= MAX_LIFETIME_MS))
    reject('must be from 1 s to 5 years');
  if (nowMs + lifetimeMs > limitMs) {
    reject(
      `ends after the credential of this call, which expires at ${new Date(limitMs).toISOString()}; choose a shorter lifetime, or ask an administrator of the cluster for the token`,
    );
  }
  return nowMs + lifetimeMs;
}

/** Returns true when a credential is neither revoked nor expired. */
export function isUsable({ credential }: CredentialRecord, nowMs: number): boolean {
  return (
    credential !== undefined &&
    credential.revokedAt === undefined &&
    !isAtOrAfter(nowMs, credential.expiresAt)
  );
}

/** Returns the time at which a credential expires; Infinity when it never does. */
export function getExpiryMs(record: CredentialRecord | undefined): number {
  const expiresAt = record?.credential?.expiresAt;
  return expiresAt === undefined ? Number.POSITIVE_INFINITY : timestampMs(expiresAt);
}

/**
 * Credentials of one user. Bounds the store against a user that creates tokens in a loop, and the
 * transaction that deletes the user with all credentials.
 */
export const MAX_CREDENTIALS = 80;

/**
 * Returns the ids of credentials to delete when a user gets another one: the oldest ones that can no
 * longer be used.
 * @throws kind `exhausted` when too many credentials can be used.
 */
export function selectCredentialsToDelete(
  owned: readonly CredentialRecord[],
  nowMs: number,
): readonly string[] {
  const surplus = owned.length + 1 - MAX_CREDENTIALS;
  if (surplus <= 0) return [];
  const ended = owned.filter((record) => !isUsable(record, nowMs));
  if (ended.length < surplus) {
    throw new CloudlessError(
      'LIMIT_REACHED',
      `user "${owned[0]?.credential?.user}" has ${MAX_CREDENTIALS} valid credentials; revoke some of them first`,
    );
  }
  return ended
    .sort((a, b) => getCreationMs(a) - getCreationMs(b))
    .slice(0, surplus)
    .map(({ credential }) => credential?.id ?? '');
}

/** Returns the sort key of a credential: its creation time, then its id. */
export function toAgeKey(record: CredentialRecord): string {
  return `${String(getCreationMs(record)).padStart(16, '0')}/${record.credential?.id}`;
}

function getCreationMs({ credential }: CredentialRecord): number {
  return credential?.createdAt === undefined ? 0 : timestampMs(credential.createdAt);
}

function isSameGrant(a: RequestedGrant, b: RequestedGrant): boolean {
  return a.role === b.role && a.namespace === b.namespace;
}

function withGrants(record: UserRecord, grants: RoleGrant[]): UserRecord {
  const changed = clone(UserRecordSchema, record);
  if (changed.user !== undefined) changed.user.grants = grants;
  return changed;
}
