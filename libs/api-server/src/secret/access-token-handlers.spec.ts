import { clone, create } from '@bufbuild/protobuf';
import { ConnectError } from '@connectrpc/connect';
import {
  GetSecretRequestSchema,
  SecretsService,
  createSecretsClient,
  type GetSecretResponse,
  type SecretsClient,
} from '@cloudless/api';
import { AccessTokenRecordSchema } from '@cloudless/api/store';
import { createSeededRandom } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { toValueKeyId } from '@cloudless/cluster-state';
import { createAccessToken, hashAccessToken, type Grant } from '@cloudless/identity';
import { ANONYMOUS_CALLER } from '../access/caller.js';
import { AuditEntry } from '../audit/audit-log.js';
import { KeyedMutex } from '../mutation/keyed-mutex.js';
import { ApiTestBed } from '../testing/api-test-bed.js';
import {
  TestIdentity,
  createCertificateClient,
  createTokenClient,
} from '../testing/test-identity.js';
import { ACCESS_TOKEN_REFUSED, AccessTokenUses } from './access-token-use.js';
import { MAX_TOKENS_PER_COMMIT } from './token-revocation.js';
import { SecretKeys } from './secret-keys.js';
import { StoredSecretValues } from './secret-values.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const toText = (value: Uint8Array | undefined): string => Buffer.from(value ?? []).toString();
const HOUR_MS = 3_600_000;
const REFUSED = `[permission_denied] ${ACCESS_TOKEN_REFUSED}`;

/** Counts the results of calls: successes, and the messages of errors. */
async function countResults(calls: readonly Promise<unknown>[]): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const result of await Promise.allSettled(calls)) {
    const key = result.status === 'fulfilled' ? 'ok' : ConnectError.from(result.reason).rawMessage;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

describe('access tokens', () => {
  let bed: ApiTestBed;
  let client: SecretsClient;
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    client = createSecretsClient(bed.transport);
    await client.createSecret({
      name: 'db',
      data: { k: bytes('v1') },
      audiences: ['ci', 'user/*'],
    });
  });
  afterEach(() => bed.close());

  const generate = async (fields: Parameters<SecretsClient['generateAccessToken']>[0] = {}) => {
    const { token, text } = await client.generateAccessToken({
      name: 'db',
      audience: 'ci',
      ...fields,
    });
    return { id: token?.id ?? '', text, token };
  };
  const use = (accessToken: string, fields: Parameters<SecretsClient['getSecret']>[0] = {}) =>
    client.getSecret({ name: 'db', accessToken, audience: 'ci', ...fields });
  const validate = (accessToken: string, fields: object = {}) =>
    client.validateAccessToken({ name: 'db', accessToken, audience: 'ci', ...fields });
  const readLog = async (fields: Parameters<SecretsClient['getSecretAuditLog']>[0] = {}) =>
    (await client.getSecretAuditLog({ name: 'db', oldestFirst: true, ...fields })).entries;
  const describeLog = async () =>
    (await readLog()).map(({ operation, result, cause }) =>
      `${operation} ${result} ${cause}`.trim(),
    );

  it('read the values of a secret, as often as they may, and are listed while they are valid', async () => {
    const { id, text, token } = await generate({ maxUses: 2 });
    expect(text).toMatch(/^cls1\.[a-z0-9]{12}\.[A-Za-z0-9_-]{43}$/);
    expect(token).toMatchObject({
      ...{ id: text.split('.')[1], audience: 'ci', createdBy: 'anonymous@loopback' },
      ...{ maxUses: 2, useCount: 0 },
      expiresAt: { seconds: BigInt((bed.clock.wallTime() + HOUR_MS) / 1_000) },
    });
    const response = await use(text);
    expect(response).toMatchObject({ version: 1, accessTokens: [] });
    expect(toText(response.data['k'])).toBe('v1');
    expect(response.secret).toMatchObject({ name: 'db', audiences: [], usedBy: [] });
    const listed = await client.getSecret({ name: 'db' });
    expect(listed).toMatchObject({ data: {}, version: 0, accessTokens: [{ id, useCount: 1 }] });
    await client.updateSecret({ name: 'db', data: { k: bytes('v2') } });
    expect(toText((await use(text, { version: 1 })).data['k'])).toBe('v1');
    await expect(use(text)).rejects.toThrow(REFUSED);
    expect((await client.getSecret({ name: 'db' })).accessTokens).toEqual([]);
    expect((await generate({ maxUses: -1 })).token?.maxUses).toBe(-1);
    expect((await generate()).token?.maxUses).toBe(1);
  });

  it('permit exactly 10 of 20 parallel uses of a token with 10 uses', async () => {
    const { text } = await generate({ maxUses: 10 });
    expect(await countResults(Array.from({ length: 20 }, () => use(text)))).toEqual({
      ...{ ok: 10, [ACCESS_TOKEN_REFUSED]: 10 },
    });
    const log = await describeLog();
    expect(log.filter((line) => line === 'GetSecret ok')).toHaveLength(10);
    expect(log.filter((line) => line === 'GetSecret permission_denied used up')).toHaveLength(10);
  });

  it('permit exactly 10 of 20 parallel uses when every commit meets the others in the store', async () => {
    const { id, text } = await generate({ maxUses: 10 });
    const { state, clock } = bed;
    const values = new StoredSecretValues({ state, clock, keys: bed.secretKeys });
    const request = create(GetSecretRequestSchema, {
      ...{ name: 'db', accessToken: text, audience: 'ci' },
    });
    let conflicts = 0;
    const commit = state.commit.bind(state);
    state.commit = (transaction) =>
      commit(transaction).catch((reason: unknown) => {
        conflicts += 1;
        throw reason;
      });
    const calls = Array.from({ length: 20 }, (_, index) => {
      // Handlers with mutexes of their own run their uses at the same time.
      const uses = new AccessTokenUses({
        ...{ state, clock, values, keys: bed.secretKeys, mutex: new KeyedMutex() },
        random: createSeededRandom(index),
      });
      const entry = new AuditEntry(state, ANONYMOUS_CALLER, {
        ...{ rpc: 'cloudless.api.SecretsService/GetSecret', address: '', traceId: '' },
        ...{ principal: 'anonymous@loopback', credentialId: '', requestId: '' },
        subject: { secrets: ['default/db'] },
      });
      return uses.readValues(request, entry);
    });
    const results = countResults(calls);
    for (let step = 0; step < 100; step += 1) await clock.advance(100);
    expect(await results).toEqual({ ok: 10, [ACCESS_TOKEN_REFUSED]: 10 });
    expect(conflicts).toBeGreaterThan(20);
    expect(state.view().accessToken(id)?.value.token?.useCount).toBe(10);
    expect((await describeLog()).filter((line) => line === 'GetSecret ok')).toHaveLength(10);
  });

  it.each([
    ['a ttl below 1 s', { ttl: { nanos: 999_000_000 } }, 'ttl: must be from 1 s to 24 h'],
    ['a ttl above 24 h', { ttl: { seconds: 86_401n } }, 'ttl: must be from 1 s to 24 h'],
    ['no audience', { audience: '' }, 'audience'],
    [
      'an audience that the secret does not permit',
      { audience: 'cd' },
      'audience: secret "default/db" does not permit the audience cd; the secret permits ci, user/*',
    ],
    ['an audience with a prefix', { audience: 'user/*' }, 'audience'],
    ['too few uses', { maxUses: -2 }, 'max_uses'],
  ])('are not generated with %s', async (_, fields, message) => {
    const call = generate(fields);
    await expect(call).rejects.toThrow('[invalid_argument]');
    await expect(call).rejects.toThrow(message);
  });

  it('are not generated for the audiences of routes', async () => {
    await client.updateSecret({ name: 'db', audiences: ['*'] });
    await expect(
      client.generateAccessToken({ name: 'db', audience: 'route/default.web' }),
    ).rejects.toThrow(
      '[invalid_argument] audience: route/default.web is the audience of a route, for which no access token can be used; name who uses the token',
    );
  });

  it('are neither generated nor used for an expired secret, and not for a missing one', async () => {
    const { text } = await generate();
    await client.updateSecret({ name: 'db', ttl: { seconds: 10n } });
    await bed.clock.advance(10_000);
    await expect(generate()).rejects.toThrow('secret "default/db" has expired');
    await expect(use(text)).rejects.toThrow(REFUSED);
    expect(await validate(text)).toMatchObject({ valid: false, reason: 'expired' });
    await expect(generate({ name: 'none' })).rejects.toThrow('secret "default/none" not found');
  });

  it('expire by the clock', async () => {
    const { text } = await generate({ ttl: { seconds: 60n }, maxUses: 2 });
    await bed.clock.advance(59_999);
    await use(text);
    expect(await validate(text)).toMatchObject({ valid: true, reason: '', usesRemaining: 1 });
    await bed.clock.advance(1);
    await expect(use(text)).rejects.toThrow(REFUSED);
    expect(await validate(text)).toMatchObject({ valid: false, reason: 'expired' });
  });

  it('are refused with one message, whose cause only the audit log of the secret has', async () => {
    await client.createSecret({ name: 'other', data: { k: bytes('v') }, audiences: ['ci', 'cd'] });
    const [active, revoked, used] = [await generate(), await generate(), await generate()];
    await client.revokeAccessToken({ name: 'db', tokenId: revoked.id });
    await use(used.text);
    const tampered = `cls1.${active.id}.${used.text.split('.')[2] ?? ''}`;
    const unknown = createAccessToken((count) => new Uint8Array(count).fill(9)).text;
    const refusals = [
      use(tampered),
      use(unknown),
      use('cls1.x'),
      use(active.text, { audience: 'cd' }),
      use(revoked.text),
      use(used.text),
      use(active.text, { name: 'other' }),
      use(active.text, { name: 'none' }),
    ];
    const errors = await Promise.all(
      refusals.map((call) => call.catch((reason: unknown) => reason)),
    );
    const shown = errors.map((error) => {
      const { code, rawMessage, details, metadata } = ConnectError.from(error);
      return JSON.stringify({ code, rawMessage, details, metadata: [...metadata] });
    });
    expect(new Set(shown).size).toBe(1);
    expect(shown[0]).toContain(ACCESS_TOKEN_REFUSED);
    const log = await readLog();
    expect(
      log.filter(({ cause }) => cause !== '').map(({ cause, tokenId }) => `${cause} ${tokenId}`),
    ).toEqual([
      `tampered token ${active.id}`,
      `unknown token ${unknown.split('.')[1] ?? ''}`,
      'malformed token ',
      `other audience ${active.id}`,
      `revoked ${revoked.id}`,
      `used up ${used.id}`,
    ]);
    expect(await readLog({ name: 'other' })).toMatchObject([{}, { cause: 'other secret' }]);
    expect(await readLog({ name: 'none' })).toMatchObject([{ cause: 'other secret' }]);
    // None of them has counted a use.
    expect(bed.state.view().accessToken(active.id)?.value.token?.useCount).toBe(0);
    for (const [text, fields, reason] of [
      [tampered, {}, 'unknown'],
      [unknown, {}, 'unknown'],
      [active.text, { audience: 'cd' }, 'unknown'],
      [active.text, { name: 'none' }, 'unknown'],
      [revoked.text, {}, 'revoked'],
      [used.text, {}, 'used up'],
    ] as const) {
      const { expiresAt, ...validity } = await validate(text, fields);
      expect(validity).toMatchObject({ valid: false, reason, usesRemaining: 0 });
      expect(expiresAt === undefined).toBe(reason === 'unknown');
    }
  });

  it('are refused without an audience; audience and version are refused without a token', async () => {
    const { text } = await generate();
    await expect(use(text, { audience: '' })).rejects.toThrow(
      '[invalid_argument] audience: is required with access_token',
    );
    for (const [field, fields] of [
      ['audience', { audience: 'ci' }],
      ['version', { version: 1 }],
    ] as const)
      await expect(client.getSecret({ name: 'db', ...fields })).rejects.toThrow(
        `[invalid_argument] ${field}: needs access_token`,
      );
  });

  it('count no use when the values cannot be read', async () => {
    const { id, text } = await generate();
    await expect(use(text, { version: 7 })).rejects.toThrow('[not_found] version 7');
    const { uid } = bed.state.view().secret('default/db')?.value ?? { uid: '' };
    const stored = await bed.state.readRecord('secretvalue', toValueKeyId(uid, 1));
    const lost = bed.state.transaction().delete('secretvalue', toValueKeyId(uid, 1));
    await bed.state.commit(lost);
    await expect(use(text)).rejects.toThrow('[not_found] version 1');
    expect(bed.state.view().accessToken(id)?.value.token?.useCount).toBe(0);
    if (stored === undefined) throw new Error('no values');
    const found = bed.state.transaction().put('secretvalue', toValueKeyId(uid, 1), stored.value);
    await bed.state.commit(found);
    expect(toText((await use(text)).data['k'])).toBe('v1');
  });

  it('are revoked by id, by text and all together, once', async () => {
    const [first, second, ...others] = [
      await generate(),
      await generate(),
      await generate({ maxUses: -1 }),
      await generate(),
    ];
    const revoke = async (fields: object) =>
      (await client.revokeAccessToken({ name: 'db', ...fields })).revoked;
    expect(await revoke({ tokenId: first?.id })).toBe(1);
    expect(await revoke({ tokenId: first?.id })).toBe(0);
    expect(await revoke({ accessToken: second?.text })).toBe(1);
    expect(await revoke({ all: true })).toBe(2);
    expect(await revoke({ all: true })).toBe(0);
    for (const { text } of [...others]) await expect(use(text)).rejects.toThrow(REFUSED);
    expect(bed.events('AccessTokensRevoked').map(({ message }) => message)).toEqual([
      `access token ${first?.id} of secret default/db was revoked`,
      `access token ${second?.id} of secret default/db was revoked`,
      '2 access tokens of secret default/db were revoked',
    ]);
    const other = createAccessToken((count) => new Uint8Array(count).fill(9));
    for (const [fields, message] of [
      [{}, 'set exactly one of token_id, access_token and all'],
      [{ all: true, tokenId: first?.id }, 'set exactly one of token_id, access_token and all'],
      [{ tokenId: other.text }, 'token_id: is no id of an access token'],
      [{ tokenId: other.id }, '[not_found] secret "default/db" has no access token'],
      [{ accessToken: other.text }, '[not_found] secret "default/db" has no such access token'],
      [{ name: 'none', all: true }, '[not_found] secret "default/none" not found'],
    ] as const) {
      const call = revoke(fields);
      await expect(call).rejects.toThrow(message);
      await expect(call).rejects.not.toThrow(other.secret);
    }
  });

  it('read new values after an update, unless the update revokes them', async () => {
    const { text } = await generate({ maxUses: -1 });
    await client.updateSecret({ name: 'db', data: { k: bytes('v2') } });
    expect(toText((await use(text)).data['k'])).toBe('v2');
    const update = { name: 'db', data: { k: bytes('v3') }, revokeExistingTokens: true };
    await client.updateSecret({ ...update, dryRun: true });
    await use(text);
    await expect(client.updateSecret({ ...update, expectedGeneration: 9n })).rejects.toThrow();
    await use(text);
    await client.updateSecret(update);
    await expect(use(text)).rejects.toThrow(REFUSED);
    const second = await generate();
    await client.updateSecret({ name: 'db', revokeExistingTokens: true });
    await expect(use(second.text)).rejects.toThrow(REFUSED);
    expect((await client.getSecret({ name: 'db' })).secret?.generation).toBe(3n);
    const third = await generate();
    await client.updateSecret({ name: 'db', audiences: ['cd'] });
    await expect(use(third.text)).rejects.toThrow(REFUSED);
    expect(await validate(third.text)).toMatchObject({ valid: false, reason: 'revoked' });
  });

  it('are revoked by an update in its turn among their uses, without a conflict', async () => {
    const { text } = await generate({ maxUses: -1 });
    let conflicts = 0;
    const commit = bed.state.commit.bind(bed.state);
    bed.state.commit = (transaction) =>
      commit(transaction).catch((reason: unknown) => {
        conflicts += 1;
        throw reason;
      });
    const uses = Array.from({ length: 20 }, () => use(text));
    const update = client.updateSecret({ name: 'db', revokeExistingTokens: true });
    await Promise.all([update, ...uses.map((each) => each.catch(() => undefined))]);
    expect(conflicts).toBe(0);
    await expect(use(text)).rejects.toThrow(REFUSED);
  });

  it('are refused after the same number of commits, whatever the cause', async () => {
    const { text } = await generate({ maxUses: -1, ttl: { seconds: 86_400n } });
    /** Counts the records of refusals in excess, beginning with an empty rate limit. */
    const countRecords = async (
      accessToken: string,
      fields: Parameters<typeof use>[1],
    ): Promise<number> => {
      await bed.clock.advance(600_000);
      const before = bed.auditRecords.length;
      for (let count = 0; count < 12; count += 1)
        await use('cls1.x', { name: 'none' }).catch(() => undefined);
      for (let count = 0; count < 3; count += 1)
        await use(accessToken, { name: 'none', ...fields }).catch(() => undefined);
      return bed.auditRecords.length - before;
    };
    const ofMissing = await countRecords('cls1.x', {});
    await client.createSecret({ name: 'none', data: { k: bytes('v') }, audiences: ['ci'] });
    expect(await countRecords('cls1.x', {})).toBe(ofMissing);
    expect(await countRecords(text, {})).toBe(ofMissing);
    expect(await countRecords(text, { audience: 'cd' })).toBe(ofMissing);
  });

  it('keep their secret while they are valid, and are deleted with it', async () => {
    await use((await generate()).text);
    const { text } = await generate();
    await expect(client.deleteSecret({ name: 'db' })).rejects.toThrow(
      '[failed_precondition] secret "default/db" has 1 valid access token',
    );
    await client.deleteSecret({ name: 'db', revokeTokens: true });
    expect([...bed.state.view().accessTokens()]).toEqual([]);
    await client.createSecret({ name: 'db', data: { k: bytes('v1') }, audiences: ['ci'] });
    await expect(use(text)).rejects.toThrow(REFUSED);
    await client.deleteSecret({ name: 'db' });
  });

  /** Stores tokens of the secret, as if they had been generated. */
  async function putTokens(count: number): Promise<void> {
    const secretUid = bed.state.view().secret('default/db')?.value.uid ?? '';
    const first = await generate();
    const base = bed.state.view().accessToken(first.id)?.value;
    if (base?.token === undefined) throw new Error('no token');
    for (let from = 1; from < count; from += 90) {
      const transaction = bed.state.transaction();
      for (let index = from; index < Math.min(from + 90, count); index += 1) {
        const id = `t${String(index).padStart(11, '0')}`;
        const record = clone(AccessTokenRecordSchema, base);
        Object.assign(record, {
          secretUid,
          hmac: hashAccessToken(new Uint8Array(32), { id, secret: '' }),
        });
        if (record.token !== undefined) record.token.id = id;
        transaction.put('accesstoken', id, record);
      }
      await bed.state.commit(transaction);
    }
  }
  const countLive = async () => (await client.getSecret({ name: 'db' })).accessTokens.length;

  it('are revoked and deleted in as many transactions as their number needs', async () => {
    const count = 2 * MAX_TOKENS_PER_COMMIT + 1;
    await putTokens(count);
    expect(await countLive()).toBe(count);
    const { revoked } = await client.revokeAccessToken({ name: 'db', all: true });
    expect([revoked, await countLive()]).toEqual([count, 0]);
    await putTokens(count);
    await client.updateSecret({ name: 'db', labels: { a: 'b' }, revokeExistingTokens: true });
    expect(await countLive()).toBe(0);
    await putTokens(count);
    await client.deleteSecret({ name: 'db', revokeTokens: true });
    expect([...bed.state.view().accessTokens()]).toEqual([]);
    expect(bed.auditRecords.slice(-2)).toEqual(['GenerateAccessToken ok', 'DeleteSecret ok']);
  });

  it('are refused beyond 10,000 valid ones, until some have ended', async () => {
    await putTokens(10_000);
    await expect(generate()).rejects.toThrow(
      '[resource_exhausted] the cluster has 10000 valid access tokens, which is the limit',
    );
    await bed.clock.advance(HOUR_MS);
    await generate();
  });

  it('have an audit log by page, with merged entries, also after the deletion of the secret', async () => {
    const { id, text } = await generate({ maxUses: -1 });
    for (let count = 0; count < 15; count += 1) await use('cls1.x').catch(() => undefined);
    await bed.clock.advance(10_000);
    await use('cls1.x').catch(() => undefined);
    await use(text);
    await client.deleteSecret({ name: 'db', revokeTokens: true });
    const newest = await client.getSecretAuditLog({ name: 'db', pageSize: 2 });
    expect(newest.entries).toMatchObject([
      { operation: 'DeleteSecret', result: 'ok', version: 0, tokenId: '', count: 1 },
      {
        ...{ operation: 'GetSecret', result: 'ok', version: 1, tokenId: id, audience: 'ci' },
        ...{ principal: 'anonymous@loopback', cause: '', count: 1 },
      },
    ]);
    const request = { name: 'db', pageSize: 2, pageToken: newest.nextPageToken };
    expect((await client.getSecretAuditLog(request)).entries[0]).toMatchObject({
      ...{
        operation: 'GetSecret',
        result: 'permission_denied',
        cause: 'malformed token',
        count: 6,
      },
    });
    expect(await describeLog()).toHaveLength(2 + 10 + 3);
    const since = newest.entries[0]?.time;
    expect((await readLog(since === undefined ? {} : { since })).length).toBe(3);
    await expect(client.getSecretAuditLog({ ...request, oldestFirst: true })).rejects.toThrow(
      'belongs to a list with another filter',
    );
  });

  it('are in no audit record when their text is sent as the audience', async () => {
    const { id, text } = await generate();
    await expect(use('x', { audience: text })).rejects.toThrow(REFUSED);
    await expect(generate({ audience: text })).rejects.toThrow(
      'audience: is the text of an access',
    );
    expect((await readLog()).map(({ audience }) => audience)).toEqual(['', 'ci', '', '']);
    expect(bed.state.view().accessToken(id)?.value.token?.useCount).toBe(0);
  });
});

describe('access tokens without the key-encryption key', () => {
  it('are refused with what to do', async () => {
    const bed = await ApiTestBed.open({ secretKeys: new SecretKeys() });
    const client = createSecretsClient(bed.transport);
    const name = { name: 'db' };
    for (const call of [
      client.generateAccessToken({ ...name, audience: 'ci' }),
      client.getSecret({ ...name, accessToken: 'x', audience: 'ci' }),
      client.revokeAccessToken({ ...name, all: true }),
      client.validateAccessToken({ ...name, accessToken: 'x', audience: 'ci' }),
      client.getSecretAuditLog(name),
    ])
      await expect(call).rejects.toThrow(
        '[failed_precondition] this coordinator has no key-encryption key',
      );
    await bed.close();
  });
});

describe('callers with access tokens', () => {
  let identity: TestIdentity;
  let bed: ApiTestBed;
  beforeAll(async () => {
    identity = await TestIdentity.create(new ManualClock().wallTime());
  });
  beforeEach(async () => {
    bed = await ApiTestBed.open({ identity });
    await identity.putAuthority(bed);
    await bed.putReplica('w-0');
    const owner = await connect('owner', [{ role: 'operator', namespace: 'default' }]);
    await owner.createSecret({ name: 'db', data: { k: bytes('v') }, audiences: ['*'] });
  });
  afterEach(() => bed.stop());

  const connect = async (user: string, grants: readonly Grant[] = []): Promise<SecretsClient> =>
    createTokenClient(bed, SecretsService, await identity.putUser(bed, user, grants));
  const generate = async (audience: string): Promise<string> => {
    const owner = await connect('owner', [{ role: 'operator', namespace: 'default' }]);
    return (await owner.generateAccessToken({ name: 'db', audience, maxUses: -1 })).text;
  };
  const use = (client: SecretsClient, accessToken: string, audience: string) =>
    client.getSecret({ name: 'db', accessToken, audience });
  const isRead = ({ data }: GetSecretResponse) => toText(data['k']) === 'v';

  it('read a secret without a role, and see nothing else of it', async () => {
    const stranger = await connect('eve');
    const text = await generate('deploy');
    expect(isRead(await use(stranger, text, 'deploy'))).toBe(true);
    for (const call of [
      stranger.getSecret({ name: 'db' }),
      // Refused before the request is read, so that these records name no secret.
      stranger.getSecretAuditLog({ name: 'db' }),
      stranger.generateAccessToken({ name: 'db', audience: 'deploy' }),
      stranger.revokeAccessToken({ name: 'db', all: true }),
    ])
      await expect(call).rejects.toThrow('user/eve does not have the role');
    const operator = await connect('oz', [{ role: 'operator', namespace: 'home' }]);
    await expect(operator.revokeAccessToken({ name: 'db', all: true })).rejects.toThrow('role');
    await expect(operator.getSecretAuditLog({ name: 'db' })).rejects.toThrow('role viewer');
    const viewer = await connect('vic', [{ role: 'viewer', namespace: 'default' }]);
    const { entries } = await viewer.getSecretAuditLog({ name: 'db' });
    expect(
      entries.map(({ principal, operation, result }) => `${principal} ${operation} ${result}`),
    ).toEqual([
      'user/oz GetSecretAuditLog permission_denied',
      'user/oz RevokeAccessToken permission_denied',
      'user/eve GetSecret permission_denied',
      'user/eve GetSecret ok',
      'user/owner GenerateAccessToken ok',
      'user/owner CreateSecret ok',
    ]);
  });

  it('must be the identity that the audience names', async () => {
    const ada = await connect('ada');
    const eve = await connect('eve');
    const certificate = await identity.authority.issue('workload', 'default.web-w', HOUR_MS);
    const workload = createCertificateClient(bed, SecretsService, 'c1', certificate);
    const node = createCertificateClient(
      ...([bed, SecretsService, 'c22', await identity.putNode(bed, 'n1')] as const),
    );
    const audience = 'workload/default.web-w';
    const ofWorkload = await generate(audience);
    expect(isRead(await use(workload, ofWorkload, audience))).toBe(true);
    await expect(use(ada, ofWorkload, audience)).rejects.toThrow(REFUSED);
    await expect(workload.getSecret({ name: 'db' })).rejects.toThrow(
      'may make this call only with an access token',
    );
    const ofAda = await generate('user/ada');
    expect(isRead(await use(ada, ofAda, 'user/ada'))).toBe(true);
    expect(
      await ada.validateAccessToken({ name: 'db', accessToken: ofAda, audience: 'user/ada' }),
    ).toMatchObject({ valid: true, usesRemaining: -1 });
    for (const other of [eve, workload]) {
      await expect(use(other, ofAda, 'user/ada')).rejects.toThrow(REFUSED);
      expect(
        await other.validateAccessToken({ name: 'db', accessToken: ofAda, audience: 'user/ada' }),
      ).toMatchObject({ valid: false, reason: 'unknown' });
    }
    const ofAll = await generate('deploy');
    for (const caller of [ada, eve, workload])
      expect(isRead(await use(caller, ofAll, 'deploy'))).toBe(true);
    await expect(use(node, ofAll, 'deploy')).rejects.toThrow('the call is not for nodes');
    await expect(
      node.validateAccessToken({ name: 'db', accessToken: ofAll, audience: 'deploy' }),
    ).rejects.toThrow('the call is not for nodes');
  });
});
