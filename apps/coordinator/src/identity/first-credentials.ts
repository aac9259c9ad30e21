import { join } from 'node:path';
import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  JoinTokenSchema,
  Role,
  RoleGrantSchema,
  UserCredentialSchema,
  UserCredential_Kind as CredentialKind,
  UserSchema,
} from '@cloudless/api';
import {
  CredentialRecordSchema,
  JoinTokenRecordSchema,
  UserRecordSchema,
} from '@cloudless/api/store';
import type { Clock, Log, Random } from '@cloudless/base';
import type { ClusterState, ClusterView } from '@cloudless/cluster-state';
import type { ClusterIdentities } from '@cloudless/controllers';
import { createToken, hashToken, type TokenKind } from '@cloudless/identity';
import { replaceSecretFile } from '@cloudless/identity/files';
import { ADMIN_CREDENTIAL_FILE, JOIN_COMMAND_FILE } from './token-files.js';

export interface FirstCredentialsOptions {
  readonly state: ClusterState;
  readonly identities: ClusterIdentities;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** The identity directory. */
  readonly directory: string;
  /** URL that other machines use. */
  readonly joinUrl: string;
  /**
   * Also writes a new admin credential when an administrator has a valid credential: the operator
   * asks for the way back, or a new token secret has made every token invalid.
   */
  readonly mustRenew: boolean;
}

const ADMIN = 'admin';
const HOUR_MS = 3_600_000;
const ADMIN_LIFETIME_MS = 90 * 24 * HOUR_MS;
const JOIN_LIFETIME_MS = 24 * HOUR_MS;
const JOIN_USES = 10;

/**
 * Makes sure that somebody can administrate the cluster: when no user has a valid credential and is
 * admin of the whole cluster, or a new credential is asked for, writes a token of the user `admin` to
 * the file `admin.credential`, and revokes the earlier credentials of this user. At the first start
 * of a cluster also writes the complete command by which machines join to the file `join-command`.
 * Both files are readable only by their owner, and no secret is logged.
 *
 * Whoever can restart the coordinator and read these files has the keys of the certificate authority
 * beside them, so this gives no rights that the reader does not have.
 */
export async function writeFirstCredentials(options: FirstCredentialsOptions): Promise<void> {
  const { state, clock, log, directory } = options;
  const view = state.view();
  const nowMs = clock.wallTime();
  const isLocked = !hasAdmin(view, nowMs);
  if (!isLocked && !options.mustRenew) return;
  const isFirst = [...view.users()].length === 0;
  const credentialFile = join(directory, ADMIN_CREDENTIAL_FILE);
  const joinFile = join(directory, JOIN_COMMAND_FILE);
  const admin = makeToken(options, 'user');
  const joining = makeToken(options, 'join');
  // The files are complete before the records make their tokens valid. After a crash in between, the
  // next start writes both again.
  await replaceSecretFile(credentialFile, `${admin.text}\n`);
  if (isFirst)
    await replaceSecretFile(joinFile, `${toJoinCommand(joining.text, options.joinUrl)}\n`);
  const createdBy = `controller/${options.identities.coordinatorId.id}`;
  const transaction = state
    .transaction()
    .put('user', ADMIN, createAdmin(view, nowMs))
    .put(
      'credential',
      admin.id,
      create(CredentialRecordSchema, {
        credential: create(UserCredentialSchema, {
          id: admin.id,
          user: ADMIN,
          kind: CredentialKind.TOKEN,
          description: 'admin.credential of the coordinator',
          createdAt: timestampFromMs(nowMs),
          expiresAt: timestampFromMs(nowMs + ADMIN_LIFETIME_MS),
          createdBy,
        }),
        hmac: admin.hmac,
      }),
    )
    .event({
      severity: isFirst ? Severity.INFO : Severity.WARNING,
      category: Category.MEMBERSHIP,
      reason: 'AdminCredentialCreated',
      message: isFirst
        ? `user ${ADMIN} was created with a credential of 90 days`
        : `${isLocked ? 'no administrator had a valid credential' : 'the start of the coordinator renewed the way back'}; user ${ADMIN} got a credential of 90 days`,
    });
  for (const { value } of view.credentials()) {
    const { id = '', user, revokedAt } = value.credential ?? {};
    if (user !== ADMIN || revokedAt !== undefined) continue;
    // Whoever has an earlier credential of the user may have had fewer roles.
    const revoked = clone(CredentialRecordSchema, value);
    if (revoked.credential !== undefined) revoked.credential.revokedAt = timestampFromMs(nowMs);
    transaction.put('credential', id, revoked);
  }
  if (isFirst) {
    const token = create(JoinTokenSchema, {
      id: joining.id,
      description: 'join-command of the coordinator',
      createdAt: timestampFromMs(nowMs),
      expiresAt: timestampFromMs(nowMs + JOIN_LIFETIME_MS),
      maxUses: JOIN_USES,
      createdBy,
    });
    transaction.put(
      'jointoken',
      joining.id,
      create(JoinTokenRecordSchema, { token, hmac: joining.hmac }),
    );
  }
  await state.commitObserved(transaction);
  log.info('admin credential written', { file: credentialFile });
  if (isFirst) log.info('join command written', { file: joinFile });
}

/** Returns true when a cluster-wide admin has a token or certificate that is valid now. */
function hasAdmin(view: ClusterView, nowMs: number): boolean {
  const admins = new Set(
    [...view.users()]
      .filter(({ value }) =>
        value.user?.grants.some(({ role, namespace }) => role === Role.ADMIN && namespace === ''),
      )
      .map(({ value }) => value.user?.name),
  );
  return [...view.credentials()].some(({ value: { credential } }) => {
    if (credential === undefined || !admins.has(credential.user)) return false;
    const { revokedAt, expiresAt } = credential;
    const isExpired = expiresAt !== undefined && nowMs >= timestampMs(expiresAt);
    return revokedAt === undefined && !isExpired;
  });
}

function createAdmin(view: ClusterView, nowMs: number) {
  const existing = view.user(ADMIN)?.value;
  const record =
    existing === undefined
      ? create(UserRecordSchema, {
          user: create(UserSchema, { name: ADMIN, createdAt: timestampFromMs(nowMs) }),
        })
      : clone(UserRecordSchema, existing);
  const grants = (record.user?.grants ?? []).filter(({ namespace }) => namespace !== '');
  if (record.user !== undefined)
    record.user.grants = [create(RoleGrantSchema, { role: Role.ADMIN, namespace: '' }), ...grants];
  return record;
}

function makeToken({ identities, random }: FirstCredentialsOptions, kind: TokenKind) {
  const bytes = (count: number): Uint8Array => random.bytes(count);
  const { rootSha256s } = identities.getTrustBundle();
  const { id, secret, text } = createToken(kind, bytes, rootSha256s);
  return { id, text, hmac: hashToken(identities.tokenSecret, kind, id, secret) };
}

/** The token comes from standard input, so that no list of processes shows it. */
function toJoinCommand(token: string, url: string): string {
  return `printf %s ${token} | cloudless-agent run --coordinator ${url} --join-token-file -`;
}
