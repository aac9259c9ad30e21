import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import type { JoinTokenSchema } from '@cloudless/api';
import { JoinTokenRecordSchema, type JoinTokenRecord } from '@cloudless/api/store';
import { createSeededRandom } from '@cloudless/base';
import { createToken, hashToken } from '@cloudless/identity';
import { MAX_KEPT_USES, countTokenUse, findJoinToken, judgeTokenUse } from './join-token.js';
import { findJoinNetworkProblem, isInNetworks } from './networks.js';
import { matchesNodeId } from './node-id-pattern.js';

const NOW_MS = 1_000_000;
const use = {
  nowMs: NOW_MS,
  nodeId: 'edge-1',
  instanceId: 'instance-of-edge-1',
  publicKeySha256: 'aa',
  address: '10.0.0.7',
};

function aToken(fields: MessageInitShape<typeof JoinTokenSchema> = {}): JoinTokenRecord {
  return create(JoinTokenRecordSchema, {
    token: { id: 't', maxUses: 1, expiresAt: timestampFromMs(NOW_MS + 1), ...fields },
  });
}

describe('judgeTokenUse', () => {
  it.each([
    { name: 'a fresh token', fields: {} },
    { name: 'a token for matching node ids', fields: { nodeIdPattern: 'edge-*' } },
    { name: 'a token for the network', fields: { cidrs: ['192.168.0.0/16', '10.0.0.0/8'] } },
    { name: 'a token with uses left', fields: { maxUses: 2, useCount: 1 } },
  ])('accepts $name', ({ fields }) => {
    expect(judgeTokenUse(aToken(fields), use)).toEqual({ kind: 'accepted' });
  });

  it.each([
    { cause: 'expired token', fields: { expiresAt: timestampFromMs(NOW_MS) } },
    { cause: 'revoked token', fields: { revokedAt: timestampFromMs(NOW_MS - 1) } },
    { cause: 'used up token', fields: { useCount: 1 } },
    { cause: 'token for other node ids', fields: { nodeIdPattern: 'core-*' } },
    { cause: 'token for other networks', fields: { cidrs: ['10.1.0.0/16'] } },
  ])('refuses a token with the cause "$cause"', ({ cause, fields }) => {
    expect(judgeTokenUse(aToken(fields), use)).toEqual({ kind: 'refused', cause });
  });

  it('recognises the retry of the machine and key that have used the token', () => {
    const used = countTokenUse(aToken(), use);
    expect(judgeTokenUse(used, use)).toEqual({ kind: 'replayed' });
    for (const other of [{ instanceId: 'x' }, { publicKeySha256: 'bb' }, { nodeId: 'edge-2' }])
      expect(judgeTokenUse(used, { ...use, ...other })).toMatchObject({ kind: 'refused' });
  });

  it('refuses even a retry once the token is revoked or has expired', () => {
    for (const end of [
      { revokedAt: timestampFromMs(NOW_MS) },
      { expiresAt: timestampFromMs(NOW_MS) },
    ]) {
      const used = countTokenUse(aToken(end), use);
      expect(judgeTokenUse(used, use)).toMatchObject({ kind: 'refused' });
    }
  });
});

describe('countTokenUse', () => {
  it('accepts exactly as many machines as the token was made for', () => {
    let record = aToken({ maxUses: 150 });
    let accepted = 0;
    for (let machine = 0; machine < 200; machine += 1) {
      const next = { ...use, nodeId: `n-${machine}`, instanceId: `i-${machine}` };
      if (judgeTokenUse(record, next).kind !== 'accepted') continue;
      record = countTokenUse(record, next);
      accepted += 1;
    }
    expect([accepted, record.token?.useCount]).toEqual([150, 150]);
    expect(record.token?.uses).toHaveLength(MAX_KEPT_USES);
    expect(record.bindings).toHaveLength(MAX_KEPT_USES);
    expect(record.token?.uses.at(-1)).toMatchObject({ nodeId: 'n-149', address: '10.0.0.7' });
  });

  it('does not change its argument', () => {
    const record = aToken();
    countTokenUse(record, use);
    expect(record).toEqual(aToken());
  });
});

describe('findJoinToken', () => {
  const random = createSeededRandom(1);
  const tokenSecret = random.bytes(32);
  const root = 'ab'.repeat(32);
  const bytes = (count: number): Uint8Array => random.bytes(count);
  const { id, secret, text } = createToken('join', bytes, [root]);
  const record = create(JoinTokenRecordSchema, {
    hmac: hashToken(tokenSecret, 'join', id, secret),
  });
  const view = {
    joinToken: (wanted: string) => (wanted === id ? { value: record, revision: 1n } : undefined),
  };
  const find = (given: string) =>
    findJoinToken(view, { tokenSecret, rootSha256s: ['cd'.repeat(32), root] }, given);

  it('finds the record of a token', () => {
    expect(find(text)).toEqual({ kind: 'found', record: { value: record, revision: 1n } });
  });

  it('finds the record of a token that names a root that is no longer trusted and a trusted root', () => {
    expect(find(text.replace(root, `${'ef'.repeat(32)}.${root}`)).kind).toBe('found');
  });

  const other = createToken('join', bytes, [root]);
  const user = createToken('user', bytes, [root]);
  it.each([
    { name: 'no text', given: '', cause: 'empty token' },
    { name: 'any text', given: 'secret', cause: 'malformed token' },
    { name: 'a user token', given: user.text, cause: 'malformed token' },
    { name: 'a token of nobody', given: other.text, cause: 'unknown token' },
    {
      name: 'a token with another secret',
      given: `cl1.${id}.${other.secret}.${root}`,
      cause: 'tampered token',
    },
    {
      name: 'a token of another authority',
      given: `cl1.${id}.${secret}.${'ef'.repeat(32)}`,
      cause: 'token of another authority',
    },
  ])('refuses $name with the cause "$cause"', ({ given, cause }) => {
    expect(find(given)).toMatchObject({ kind: 'refused', cause });
  });
});

describe('matchesNodeId', () => {
  it('agrees with a regular expression', () => {
    const texts = fc.string({ unit: fc.constantFrom('a', 'b', '-'), maxLength: 10 });
    const patterns = fc.string({
      unit: fc.constantFrom('a', 'b', '*'),
      minLength: 1,
      maxLength: 8,
    });
    fc.assert(
      fc.property(patterns, texts, (pattern, text) => {
        const expected = new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(text);
        expect(matchesNodeId(pattern, text)).toBe(expected);
      }),
    );
  });

  it('takes a pattern of many stars without long backtracking', () => {
    const pattern = `${'*a'.repeat(31)}b`;
    expect(matchesNodeId(pattern, 'a'.repeat(63))).toBe(false);
  });
});

describe('isInNetworks', () => {
  it.each([
    { cidrs: [], address: 'anything', expected: true },
    { cidrs: ['10.0.0.0/8'], address: '10.255.0.1', expected: true },
    { cidrs: ['10.0.0.0/8'], address: '::ffff:10.255.0.1', expected: true },
    { cidrs: ['10.0.0.0/8'], address: '11.0.0.1', expected: false },
    { cidrs: ['0.0.0.0/0'], address: '203.0.113.9', expected: true },
    { cidrs: ['10.0.0.7/32'], address: '10.0.0.8', expected: false },
    { cidrs: ['2001:db8::/32'], address: '2001:db8:1::1', expected: true },
    { cidrs: ['2001:db8::/32'], address: '2001:db9::1', expected: false },
    { cidrs: ['fe80::/10'], address: 'fe80::1%eth0', expected: true },
    { cidrs: ['10.0.0.0/8'], address: '', expected: false },
  ])('says $expected for $address in $cidrs', ({ cidrs, address, expected }) => {
    expect(isInNetworks(cidrs, address)).toBe(expected);
  });

  it.each([
    '10.0.0.0',
    '10.0.0.0/33',
    '10.0.0/8',
    '::1/129',
    '10.0.0.0/08',
    '/8',
    'a/8',
    '10.0.0.0/-1',
  ])('refuses the network "%s"', (cidr) => {
    expect(findJoinNetworkProblem(cidr)).toContain(
      'is not a network; use a form such as 10.0.0.0/8',
    );
  });

  it.each(['10.0.0.0/8', '0.0.0.0/0', '::/0', '2001:db8::/32'])('accepts "%s"', (cidr) => {
    expect(findJoinNetworkProblem(cidr)).toBeUndefined();
  });
});
