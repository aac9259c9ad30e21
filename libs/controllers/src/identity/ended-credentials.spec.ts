import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  AccessTokenRecordSchema,
  CredentialRecordSchema,
  JoinTokenRecordSchema,
  SecretRecordSchema,
} from '@cloudless/api/store';
import { listEndedCredentials } from './ended-credentials.js';

const DAY_MS = 24 * 3_600_000;
const NOW_MS = 100 * DAY_MS;
const days = (count: number) => timestampFromMs(NOW_MS + count * DAY_MS);

/** Lists the ids of what is deleted, of tokens and credentials with the given fields. */
function list(
  tokens: readonly Parameters<typeof create<typeof JoinTokenRecordSchema>>[1][],
  credentials: readonly Parameters<typeof create<typeof CredentialRecordSchema>>[1][] = [],
  accessTokens: readonly Parameters<typeof create<typeof AccessTokenRecordSchema>>[1][] = [],
): readonly string[] {
  const stored = <Value>(value: Value) => ({ value, revision: 1n });
  return listEndedCredentials(
    {
      joinTokens: () => tokens.map((init) => stored(create(JoinTokenRecordSchema, init))),
      credentials: () => credentials.map((init) => stored(create(CredentialRecordSchema, init))),
      accessTokens: () => accessTokens.map((init) => stored(create(AccessTokenRecordSchema, init))),
      secret: (key) =>
        key === 'default/db' ? stored(create(SecretRecordSchema, { uid: 'u1' })) : undefined,
    },
    NOW_MS,
  ).map(({ kind, id }) => `${kind} ${id}`);
}

describe('listEndedCredentials', () => {
  it('lists tokens that ended more than 30 days ago, and no others', () => {
    expect(
      list([
        { token: { id: 'valid', expiresAt: days(1) } },
        { token: { id: 'just-expired', expiresAt: days(-29) } },
        { token: { id: 'expired', expiresAt: days(-31) } },
        { token: { id: 'just-revoked', expiresAt: days(300), revokedAt: days(-30) } },
        { token: { id: 'revoked', expiresAt: days(300), revokedAt: days(-31) } },
      ]),
    ).toEqual(['jointoken expired', 'jointoken revoked']);
  });

  it('keeps a token as long as there is a certificate that was issued for it', () => {
    const token = { credential: { id: 'token', revokedAt: days(-40) } };
    const certificate = { credential: { id: 'cert', tokenId: 'token', expiresAt: days(-10) } };
    const old = { credential: { id: 'cert', tokenId: 'token', expiresAt: days(-40) } };
    expect(list([], [token, certificate])).toEqual([]);
    expect(list([], [token, old])).toEqual(['credential cert']);
    expect(list([], [token])).toEqual(['credential token']);
  });

  const ofSecret = { namespace: 'default', name: 'db', secretUid: 'u1' };
  it('lists access tokens that ended more than 30 days ago, and those of secrets that are gone', () => {
    expect(
      list(
        [],
        [],
        [
          { ...ofSecret, token: { id: 'valid', expiresAt: days(1) } },
          { ...ofSecret, token: { id: 'expired', expiresAt: days(-29) } },
          { ...ofSecret, token: { id: 'old', expiresAt: days(-31) } },
          { ...ofSecret, token: { id: 'revoked', expiresAt: days(1) }, revokedAt: days(-31) },
          {
            ...ofSecret,
            token: {
              ...{ id: 'used-up', maxUses: 2, useCount: 2 },
              ...{ createdAt: days(-31), expiresAt: days(-30) },
            },
          },
          { ...ofSecret, secretUid: 'u0', token: { id: 'of-former', expiresAt: days(1) } },
          { ...ofSecret, name: 'gone', token: { id: 'of-gone', expiresAt: days(1) } },
        ],
      ),
    ).toEqual([
      'accesstoken old',
      'accesstoken revoked',
      'accesstoken used-up',
      'accesstoken of-former',
      'accesstoken of-gone',
    ]);
  });

  it('keeps the newest 10,000 ended access tokens, and all valid ones', () => {
    const tokens = Array.from({ length: 10_002 }, (_, index) => ({
      ...ofSecret,
      token: { id: `t${index}`, expiresAt: timestampFromMs(NOW_MS - index * 1_000) },
    }));
    const valid = { ...ofSecret, token: { id: 'valid', maxUses: 1, expiresAt: days(1) } };
    const usedUp = {
      ...ofSecret,
      token: {
        ...{ id: 'used-up', maxUses: 1, useCount: 1 },
        ...{ createdAt: days(-1), expiresAt: days(1) },
      },
    };
    expect([...list([], [], [valid, usedUp, ...tokens])].sort()).toEqual([
      'accesstoken t10000',
      'accesstoken t10001',
      'accesstoken used-up',
    ]);
  });
});
