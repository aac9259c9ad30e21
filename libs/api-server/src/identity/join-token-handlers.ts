import { clone, create } from '@bufbuild/protobuf';
import { durationMs, timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import {
  CreateJoinTokenResponseSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  JoinTokenSchema,
  ListJoinTokensResponseSchema,
  paginate,
  type CreateJoinTokenRequest,
  type CreateJoinTokenResponse,
  type JoinToken,
  type ListJoinTokensRequest,
  type ListJoinTokensResponse,
  type RevokeJoinTokenRequest,
} from '@cloudless/api';
import { JoinTokenRecordSchema } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { createToken, hashToken } from '@cloudless/identity';
import type { IdentityPort } from '../access/identity-port.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { MutationDeps } from '../mutation/idempotent-mutation.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import { DEFAULT_TOKEN_LIFETIME_MS } from './join-token.js';
import { findJoinNetworkProblem } from './networks.js';

const MIN_LIFETIME_MS = 1_000;
const MAX_LIFETIME_MS = 365 * 24 * 3_600_000;
/** Tokens that a cluster keeps. Each is a record in memory. */
const MAX_TOKENS = 10_000;

/** Handlers of the calls of IdentityService about join tokens. */
export class JoinTokenHandlers {
  constructor(
    private readonly deps: MutationDeps,
    private readonly identity: IdentityPort,
  ) {}

  /**
   * Creates a join token. Only the hash of its text is stored.
   * @throws kind `invalid` for a lifetime or network that is not valid.
   */
  async createJoinToken(
    request: CreateJoinTokenRequest,
    entry: AuditEntry,
  ): Promise<CreateJoinTokenResponse> {
    const { state, clock, random } = this.deps;
    checkRequest(request);
    if ([...state.view().joinTokens()].length >= MAX_TOKENS) {
      throw new CloudlessError(
        'exhausted',
        `the cluster has ${MAX_TOKENS} join tokens; tokens are deleted 30 days after they end`,
      );
    }
    const nowMs = clock.wallTime();
    const { rootSha256s } = this.identity.getTrustBundle();
    const { id, secret, text } = createToken('join', (count) => random.bytes(count), rootSha256s);
    const token = create(JoinTokenSchema, {
      id,
      description: request.description,
      createdAt: timestampFromMs(nowMs),
      expiresAt: timestampFromMs(nowMs + toLifetimeMs(request)),
      maxUses: request.maxUses === 0 ? 1 : request.maxUses,
      nodeIdPattern: request.nodeIdPattern,
      labels: request.labels,
      cidrs: request.cidrs,
      createdBy: entry.caller.principal.name,
    });
    const record = create(JoinTokenRecordSchema, {
      token,
      hmac: hashToken(this.identity.tokenSecret, 'join', id, secret),
    });
    entry.nameObject(`join token ${id}`);
    await entry.commit(
      state
        .transaction()
        .require('jointoken', id, 'absent')
        .put('jointoken', id, record)
        .event({
          severity: Severity.INFO,
          category: Category.MEMBERSHIP,
          reason: 'JoinTokenCreated',
          message: `join token ${id} was created for ${token.maxUses} ${token.maxUses === 1 ? 'machine' : 'machines'}`,
        }),
    );
    return create(CreateJoinTokenResponseSchema, { token, text });
  }

  listJoinTokens(request: ListJoinTokensRequest): ListJoinTokensResponse {
    const sorted = [...this.deps.state.view().joinTokens()]
      .flatMap(({ value }) => value.token ?? [])
      .map((token) => ({ token, key: toSortKey(token) }))
      .sort((a, b) => compareDescending(a.key, b.key));
    const { items, nextPageToken } = paginate(sorted, ({ key }) => key, request, {
      filter: ['join tokens'],
      compare: compareDescending,
    });
    return create(ListJoinTokensResponseSchema, {
      tokens: items.map(({ token }) => token),
      nextPageToken,
    });
  }

  /** @throws reason TOKEN_NOT_FOUND when there is no such token. */
  revokeJoinToken({ id }: RevokeJoinTokenRequest, entry: AuditEntry): Promise<JoinToken> {
    const { state, clock, mutex } = this.deps;
    const subject = `join token "${id}"`;
    return mutex.run(subject, () =>
      retryOnConflict({ ...this.deps, subject }, async () => {
        const stored = state.view().joinToken(id);
        const token = stored?.value.token;
        if (stored === undefined || token === undefined)
          throw new CloudlessError('TOKEN_NOT_FOUND', `join token "${id}" not found`);
        if (token.revokedAt !== undefined) return token;
        const next = clone(JoinTokenRecordSchema, stored.value);
        next.token = clone(JoinTokenSchema, token);
        next.token.revokedAt = timestampFromMs(clock.wallTime());
        await entry.commit(
          state
            .transaction()
            .require('jointoken', id, stored)
            .put('jointoken', id, next)
            .event({
              severity: Severity.INFO,
              category: Category.MEMBERSHIP,
              reason: 'JoinTokenRevoked',
              message: `join token ${id} was revoked after ${token.useCount} of ${token.maxUses} uses`,
            }),
        );
        return next.token;
      }),
    );
  }
}

function checkRequest(request: CreateJoinTokenRequest): void {
  const violations: { field: string; message: string }[] = [];
  const lifetimeMs = toLifetimeMs(request);
  if (lifetimeMs < MIN_LIFETIME_MS || lifetimeMs > MAX_LIFETIME_MS)
    violations.push({ field: 'lifetime', message: 'must be from 1 s to 365 days' });
  for (const [index, cidr] of request.cidrs.entries()) {
    const message = findJoinNetworkProblem(cidr);
    if (message !== undefined) violations.push({ field: `cidrs[${index}]`, message });
  }
  if (violations.length > 0) throw new InvalidInputError(violations);
}

function toLifetimeMs({ lifetime }: CreateJoinTokenRequest): number {
  return lifetime === undefined ? DEFAULT_TOKEN_LIFETIME_MS : durationMs(lifetime);
}

/** Time of creation, then id, so that keys are unique and sort by time. */
function toSortKey({ createdAt, id }: JoinToken): string {
  const atMs = createdAt === undefined ? 0 : timestampMs(createdAt);
  return `${String(atMs).padStart(16, '0')} ${id}`;
}

function compareDescending(a: string, b: string): number {
  return a < b ? 1 : a > b ? -1 : 0;
}
