import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { CredentialRecordSchema, JoinTokenRecordSchema } from '@cloudless/api/store';
import { listEndedCredentials } from './ended-credentials.js';

const DAY_MS = 24 * 3_600_000;
const NOW_MS = 100 * DAY_MS;
const days = (count: number) => timestampFromMs(NOW_MS + count * DAY_MS);

/** Lists the ids of what is deleted, of tokens and credentials with the given fields. */
function list(
  tokens: readonly Parameters<typeof create<typeof JoinTokenRecordSchema>>[1][],
  credentials: readonly Parameters<typeof create<typeof CredentialRecordSchema>>[1][] = [],
): readonly string[] {
  const stored = <Value>(value: Value) => ({ value, revision: 1n });
  return listEndedCredentials(
    {
      joinTokens: () => tokens.map((init) => stored(create(JoinTokenRecordSchema, init))),
      credentials: () => credentials.map((init) => stored(create(CredentialRecordSchema, init))),
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
});
