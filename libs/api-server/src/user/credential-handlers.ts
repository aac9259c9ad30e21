import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CreateUserTokenResponseSchema,
  IssueUserCertificateResponseSchema,
  ListUserTokensResponseSchema,
  UserCredentialSchema,
  UserCredential_Kind as CredentialKind,
  UserService,
  paginate,
  type CreateUserTokenRequest,
  type CreateUserTokenResponse,
  type IssueUserCertificateRequest,
  type IssueUserCertificateResponse,
  type ListUserTokensRequest,
  type ListUserTokensResponse,
  type RevokeUserTokenRequest,
  type UserCredential,
} from '@cloudless/api';
import { CredentialRecordSchema, type CredentialRecord } from '@cloudless/api/store';
import { CloudlessError, definedFields, randomHex } from '@cloudless/base';
import {
  CERTIFICATE_AUTHORITY_KEY,
  type ClusterView,
  type Transaction,
} from '@cloudless/cluster-state';
import { createToken, hashToken } from '@cloudless/identity';
import { readCsr } from '@cloudless/identity/x509';
import type { ApiCaller } from '../access/caller.js';
import type { AuditEntry } from '../audit/audit-log.js';
import { requireAuthority, requireIssuingGeneration } from '../identity/issuing-generation.js';
import { toCertificateRecord } from '../identity/node-certificate.js';
import { renewCertificate } from './certificate-renewal.js';
import {
  changeUsers,
  listCredentials,
  requireIdentity,
  resolveUser,
  type UserChangeDeps,
} from './user-change.js';
import {
  computeExpiry,
  getExpiryMs,
  presentCredential,
  requireUser,
  selectCredentialsToDelete,
  toAgeKey,
} from './user-rules.js';

const calls = UserService.method;
/** Random bytes of the id of a certificate credential: as many characters as ids of tokens have. */
const ID_BYTES = 6;
/** Shortest lifetime of a certificate. */
const MIN_CERTIFICATE_MS = 1_000;

/** Handlers of the calls of UserService on credentials. */
export class CredentialHandlers {
  constructor(private readonly deps: UserChangeDeps) {}

  /** Creates a bearer token, whose text is only in the response. */
  async createUserToken(
    { user, description, lifetime }: CreateUserTokenRequest,
    entry: AuditEntry,
  ): Promise<CreateUserTokenResponse> {
    const { access, random, state } = this.deps;
    const identity = requireIdentity(this.deps);
    const { caller } = entry;
    return changeUsers(this.deps, async (view, nowMs) => {
      const userName = resolveUser(access, caller, calls.createUserToken, user);
      const { rootSha256s } = identity.getTrustBundle();
      const token = createToken('user', (count) => random.bytes(count), rootSha256s);
      const expiryMs = computeExpiry(lifetime, nowMs, this.getExpiryLimit(view, caller));
      const credential = create(UserCredentialSchema, {
        id: token.id,
        user: userName,
        kind: CredentialKind.TOKEN,
        description,
        createdAt: timestampFromMs(nowMs),
        expiresAt: timestampFromMs(expiryMs),
        createdBy: caller.principal.name,
      });
      const hmac = hashToken(identity.tokenSecret, 'user', token.id, token.secret);
      const record = create(CredentialRecordSchema, { credential, hmac });
      const transaction = state.transaction();
      addCredential(transaction, view, record, nowMs);
      await entry.commit(transaction);
      return create(CreateUserTokenResponseSchema, { credential, text: token.text });
    });
  }

  /** Lists the credentials of a user, newest first. */
  listUserTokens(request: ListUserTokensRequest, context: HandlerContext): ListUserTokensResponse {
    requireIdentity(this.deps);
    const { access, state } = this.deps;
    const caller = access.getCaller(context);
    const userName = resolveUser(access, caller, calls.listUserTokens, request.user);
    const view = state.view();
    requireUser(view, userName);
    const records = [...listCredentials(view, userName)].sort((a, b) =>
      toAgeKey(a) < toAgeKey(b) ? 1 : -1,
    );
    const { items, nextPageToken } = paginate(records, toAgeKey, request, {
      filter: ['user tokens', userName],
      compare: (a, b) => (a < b ? 1 : a > b ? -1 : 0),
    });
    return create(ListUserTokensResponseSchema, {
      credentials: items.flatMap((record) => presentCredential(record) ?? []),
      nextPageToken,
    });
  }

  /**
   * Revokes a credential, and the certificates that were issued for it. A repeated call changes
   * nothing.
   * @throws kind `notFound` when the user has no such credential.
   */
  async revokeUserToken(
    { user, id }: RevokeUserTokenRequest,
    entry: AuditEntry,
  ): Promise<UserCredential> {
    requireIdentity(this.deps);
    const { access, state } = this.deps;
    return changeUsers(this.deps, async (view, nowMs) => {
      const userName = resolveUser(access, entry.caller, calls.revokeUserToken, user);
      const named = view.credential(id)?.value.credential;
      if (named?.user !== userName)
        throw new CloudlessError('TOKEN_NOT_FOUND', `user "${userName}" has no credential "${id}"`);
      const revokedAt = timestampFromMs(nowMs);
      const toRevoke = listCredentials(view, userName).filter(
        ({ credential }) =>
          credential?.revokedAt === undefined &&
          (credential?.id === id || credential?.tokenId === id),
      );
      if (toRevoke.length === 0) return named;
      const transaction = state.transaction();
      for (const record of toRevoke) {
        const revoked = clone(CredentialRecordSchema, record);
        if (revoked.credential !== undefined) revoked.credential.revokedAt = revokedAt;
        putCredential(transaction, view, revoked);
      }
      await entry.commit(transaction, 'commitObserved');
      return { ...named, revokedAt: named.revokedAt ?? revokedAt };
    });
  }

  /**
   * Issues a client certificate for the user of the caller: renews the credential of the certificate
   * of the call, or creates a credential that ends with the bearer token of the call.
   * @throws kind `unauthenticated` for an invalid signing request, or a credential that ends within
   *   1 s; `precondition` when the caller is no user.
   */
  async issueUserCertificate(
    { csr, description }: IssueUserCertificateRequest,
    entry: AuditEntry,
  ): Promise<IssueUserCertificateResponse> {
    const identity = requireIdentity(this.deps);
    const { publicKey, publicKeySha256 } = await readCsr(csr);
    const { caller } = entry;
    return changeUsers(this.deps, async (view, nowMs) => {
      caller.check();
      const { principal, credential: used } = caller;
      const usedRecord = view.credential(used?.id ?? '')?.value;
      if (principal.kind !== 'user' || used === undefined || usedRecord === undefined)
        throw new CloudlessError('precondition', 'only users get certificates of users');
      const limitMs = getExpiryMs(usedRecord);
      if (limitMs - nowMs < MIN_CERTIFICATE_MS)
        throw new CloudlessError('unauthenticated', 'the credential expires now; log in again');
      const chain = await identity.issue({
        id: { trustDomain: identity.trustDomain, kind: 'user', id: principal.userName },
        publicKey,
        lifetimeMs: Math.min(identity.lifetimes.userMs, limitMs - nowMs),
        usage: 'client',
      });
      const certificate = toCertificateRecord({ ...chain, publicKeySha256 }, nowMs);
      requireIssuingGeneration(identity, chain);
      const transaction = this.deps.state
        .transaction()
        .require('ca', CERTIFICATE_AUTHORITY_KEY, requireAuthority(this.deps));
      let record: CredentialRecord;
      if (used.serial !== undefined) {
        record = renewCertificate(usedRecord, certificate, used.serial);
        putCredential(transaction, view, record);
      } else {
        record = create(CredentialRecordSchema, {
          credential: {
            id: randomHex(this.deps.random, ID_BYTES),
            user: principal.userName,
            kind: CredentialKind.CERTIFICATE,
            description,
            createdAt: timestampFromMs(nowMs),
            createdBy: principal.name,
            tokenId: used.id,
            ...(Number.isFinite(limitMs) ? { expiresAt: timestampFromMs(limitMs) } : {}),
          },
          current: certificate,
        });
        addCredential(transaction, view, record, nowMs);
        transaction.require('credential', used.id, view.credential(used.id) ?? 'absent');
      }
      // Also while a restored state waits: the operator who accepts the state has to log in first.
      await entry.commit(transaction, 'commitObserved');
      if (used.serial !== undefined)
        this.deps.replaceCredential?.(caller, { ...chain, publicKeySha256 });
      return create(IssueUserCertificateResponseSchema, {
        ...definedFields({ credential: presentCredential(record) }),
        certificateChain: chain.pem,
        trustBundle: identity.getTrustBundle().pem,
        coordinatorIds: [...identity.coordinatorIds],
        trustDomain: identity.trustDomain,
      });
    });
  }

  /** Returns the latest time at which a new token of the caller may expire. */
  private getExpiryLimit(view: ClusterView, caller: ApiCaller): number {
    if (this.deps.access.isPermitted(caller, calls.createUserToken, ''))
      return Number.POSITIVE_INFINITY;
    return getExpiryMs(view.credential(caller.credential?.id ?? '')?.value);
  }
}

/** Adds a new credential to a transaction, and removes old ones when there are too many. */
function addCredential(
  transaction: Transaction,
  view: ClusterView,
  record: CredentialRecord,
  nowMs: number,
): void {
  const { id = '', user = '' } = record.credential ?? {};
  for (const old of selectCredentialsToDelete(listCredentials(view, user), nowMs))
    transaction.delete('credential', old);
  transaction
    .require('user', user, requireUser(view, user))
    .require('credential', id, 'absent')
    .put('credential', id, record);
}

/** Rewrites a credential, on the condition that it has not changed. */
function putCredential(
  transaction: Transaction,
  view: ClusterView,
  record: CredentialRecord,
): void {
  const id = record.credential?.id ?? '';
  transaction
    .require('credential', id, view.credential(id) ?? 'absent')
    .put('credential', id, record);
}
