import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { AccessTokenRecordSchema, SecretRecordSchema } from '@cloudless/api/store';
import {
  ANONYMOUS_LOOPBACK,
  createAccessToken,
  hashAccessToken,
  type Principal,
} from '@cloudless/identity';
import {
  countUse,
  describeValidity,
  findAccessToken,
  isLive,
  judgeAccessToken,
  revokeToken,
  type AccessTokenRefusal,
} from './access-token.js';

const NOW_MS = 1_000_000;
const at = (ms: number) => timestampFromMs(NOW_MS + ms);
const ada: Principal = { kind: 'user', name: 'user/ada', userName: 'ada', grants: [] };
const web: Principal = { kind: 'workload', name: 'workload/shop.web' };
const node: Principal = { kind: 'node', name: 'node/n1', nodeId: 'n1' };

const aSecret = (fields: object = {}) =>
  create(SecretRecordSchema, { uid: 'u1', audiences: ['ci', 'workload/*', 'user/*'], ...fields });
const aRecord = ({
  token = {},
  ...fields
}: { token?: object; revokedAt?: ReturnType<typeof at> } = {}) =>
  create(AccessTokenRecordSchema, {
    secretUid: 'u1',
    token: { id: 't1', audience: 'ci', expiresAt: at(60_000), maxUses: 2, useCount: 1, ...token },
    ...fields,
  });

interface Case {
  readonly name: string;
  readonly record?: Parameters<typeof aRecord>[0];
  /** `null`: there is no such secret. */
  readonly secret?: object | null;
  readonly audience?: string;
  readonly principal?: Principal;
  /** Absent: accepted. */
  readonly cause?: AccessTokenRefusal;
  /** The reason of ValidateAccessToken. Default: `unknown`. */
  readonly reason?: string;
}

const cases: readonly Case[] = [
  { name: 'a user without roles', reason: '' },
  { name: 'a workload', principal: web, reason: '' },
  { name: 'a client of a cluster without TLS', principal: ANONYMOUS_LOOPBACK, reason: '' },
  { name: 'a node', principal: node, cause: 'other identity' },
  {
    name: 'a coordinator',
    principal: { kind: 'controller', name: 'controller/one' },
    cause: 'other identity',
  },
  {
    name: 'the workload of the audience',
    record: { token: { audience: 'workload/shop.web' } },
    ...{ audience: 'workload/shop.web', principal: web, reason: '' },
  },
  {
    name: 'any client in a cluster without TLS, as the workload of the audience',
    record: { token: { audience: 'workload/shop.web' } },
    ...{ audience: 'workload/shop.web', principal: ANONYMOUS_LOOPBACK, reason: '' },
  },
  {
    name: 'a user who names the workload of the audience',
    record: { token: { audience: 'workload/shop.web' } },
    ...{ audience: 'workload/shop.web', principal: ada, cause: 'other identity' },
  },
  {
    name: 'a workload whose name begins with that of the audience',
    record: { token: { audience: 'workload/shop.we' } },
    ...{ audience: 'workload/shop.we', principal: web, cause: 'other identity' },
  },
  {
    name: 'another user than that of the audience',
    record: { token: { audience: 'user/eve' } },
    ...{ audience: 'user/eve', cause: 'other identity' },
  },
  {
    name: 'a user who names a route',
    ...{ record: { token: { audience: 'route/shop.web' } }, secret: { audiences: ['*'] } },
    ...{ audience: 'route/shop.web', cause: 'other identity' },
  },
  {
    name: 'any client in a cluster without TLS, for a route',
    ...{ record: { token: { audience: 'route/shop.web' } }, secret: { audiences: ['*'] } },
    ...{ audience: 'route/shop.web', principal: ANONYMOUS_LOOPBACK, cause: 'other identity' },
  },
  { name: 'another audience', audience: 'ci2', cause: 'other audience' },
  { name: 'an empty audience', audience: '', cause: 'other audience' },
  {
    name: 'an empty audience of a token without one',
    record: { token: { audience: '' } },
    ...{ audience: '', cause: 'other audience' },
  },
  { name: 'no secret', secret: null, cause: 'other secret' },
  { name: 'a secret that was created again', secret: { uid: 'u2' }, cause: 'other secret' },
  { name: 'a revoked token', record: { revokedAt: at(-1) }, cause: 'revoked', reason: 'revoked' },
  {
    name: 'a secret that no longer permits the audience',
    secret: { audiences: ['cd'] },
    ...{ cause: 'audience no longer permitted', reason: 'revoked' },
  },
  {
    name: 'a token at the moment of its end',
    record: { token: { expiresAt: at(0) } },
    ...{ cause: 'expired', reason: 'expired' },
  },
  { name: 'a token 1 ms before its end', record: { token: { expiresAt: at(1) } }, reason: '' },
  {
    name: 'a used-up token',
    record: { token: { useCount: 2 } },
    ...{ cause: 'used up', reason: 'used up' },
  },
  {
    name: 'a token without a limit of uses',
    record: { token: { maxUses: -1, useCount: 2_000_000 } },
    reason: '',
  },
  {
    name: 'an expired secret',
    secret: { expiresAt: at(0) },
    ...{ cause: 'expired secret', reason: 'expired' },
  },
];

describe('judgeAccessToken', () => {
  it.each(cases)(
    'judges $name',
    ({ record: init, secret: fields = {}, audience = 'ci', principal = ada, cause, reason }) => {
      const record = aRecord(init);
      const secret = fields === null ? undefined : aSecret(fields);
      const judgement = judgeAccessToken(record, secret, { audience, principal, nowMs: NOW_MS });
      expect(judgement).toEqual(
        cause === undefined ? { kind: 'accepted' } : { kind: 'refused', cause },
      );
      const validity = describeValidity(judgement, record, secret);
      expect(validity.reason).toBe(reason ?? 'unknown');
      // What is not the business of the caller reveals nothing.
      if (reason === undefined) expect(validity).toEqual({ reason: 'unknown', usesRemaining: 0 });
    },
  );

  it('accepts exactly as many uses as the token has', () => {
    let record = aRecord({ token: { useCount: 0, maxUses: 3 } });
    let accepted = 0;
    const use = { audience: 'ci', principal: ada, nowMs: NOW_MS };
    while (judgeAccessToken(record, aSecret(), use).kind === 'accepted') {
      record = countUse(record);
      accepted += 1;
    }
    expect([accepted, isLive(record, NOW_MS)]).toEqual([3, false]);
  });

  it('tells the holder the earlier end of token and secret, and the uses that are left', () => {
    const secret = aSecret({ expiresAt: at(5_000) });
    expect(describeValidity({ kind: 'accepted' }, aRecord(), secret)).toEqual({
      ...{ reason: '', expiresAt: at(5_000), usesRemaining: 1 },
    });
    const revoked = revokeToken(aRecord(), NOW_MS);
    const judgement = { kind: 'refused', cause: 'revoked' } as const;
    expect(describeValidity(judgement, revoked, aSecret())).toEqual({
      ...{ reason: 'revoked', expiresAt: at(60_000), usesRemaining: 0 },
    });
  });
});

describe('findAccessToken', () => {
  const mac = new Uint8Array(32).fill(7);
  let count = 0;
  const next = () => createAccessToken((bytes) => new Uint8Array(bytes).fill((count += 1)));
  const token = next();
  const other = next();
  const stored = {
    revision: 1n,
    value: create(AccessTokenRecordSchema, { hmac: hashAccessToken(mac, token) }),
  };
  const view = { accessToken: (id: string) => (id === token.id ? stored : undefined) };

  it.each([
    ['the text of the token', token.text, mac, undefined],
    ['another text', 'x', mac, 'malformed token'],
    ['an unknown id', other.text, mac, 'unknown token'],
    ['another secret', `cls1.${token.id}.${other.secret}`, mac, 'tampered token'],
    ['another key of the cluster', token.text, new Uint8Array(32), 'tampered token'],
    ['a cluster without keys', token.text, undefined, 'tampered token'],
  ] as const)('searches %s', (_, text, key, cause) => {
    expect(findAccessToken(view, key, text)).toMatchObject(
      cause === undefined ? { kind: 'found', record: stored } : { kind: 'refused', cause },
    );
  });
});
