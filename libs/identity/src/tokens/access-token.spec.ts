import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import {
  createAccessToken,
  hashAccessToken,
  isAccessTokenId,
  matchesAccessToken,
  mayContainAccessToken,
  parseAccessToken,
  parseToken,
} from '../index.js';

const KEY = Buffer.alloc(32, 7);

describe('createAccessToken', () => {
  it('creates a token of the published form from any random bytes, which is no other token', () => {
    fc.assert(
      fc.property(fc.infiniteStream(fc.nat(255)), (stream) => {
        const { text, id, secret } = createAccessToken((count) =>
          Uint8Array.from([...stream.take(count)]),
        );
        expect(text).toMatch(/^cls1\.[a-z0-9]{12}\.[A-Za-z0-9_-]{43}$/);
        expect(parseAccessToken(text)).toEqual({ id, secret });
        expect(isAccessTokenId(id)).toBe(true);
        expect(parseToken(text)).toBeUndefined();
      }),
    );
  });
});

describe('parseAccessToken', () => {
  const { text, id, secret } = createAccessToken(randomBytes);
  it.each([
    ['an empty text', ''],
    ['another prefix', `cl1.${id}.${secret}`],
    ['a shorter id', `cls1.${id.slice(1)}.${secret}`],
    ['an upper-case id', `cls1.${'A'.repeat(12)}.${secret}`],
    ['a shorter secret', text.slice(0, -1)],
    ['a secret whose last character has spare bits', `cls1.${id}.${'A'.repeat(42)}B`],
    ['a fourth part', `${text}.x`],
    ['a line feed at the end', `${text}\n`],
    ['a very long text', text.repeat(10_000)],
  ])('returns undefined for %s', (_, changed) => {
    expect(parseAccessToken(changed)).toBeUndefined();
  });

  it.each([
    [`x ${text}`, true],
    [text.slice(0, 20), true],
    [text.toUpperCase(), true],
    ['workload/default.web', false],
    ['', false],
  ])('tells whether a text may contain a token (%#)', (other, expected) => {
    expect(mayContainAccessToken(other)).toBe(expected);
  });
});

describe('matchesAccessToken', () => {
  const token = createAccessToken(randomBytes);
  const other = createAccessToken(randomBytes);
  const stored = hashAccessToken(KEY, token);
  it.each([
    ['the token', KEY, stored, token, true],
    ['another id', KEY, stored, { ...token, id: other.id }, false],
    ['another secret', KEY, stored, { ...token, secret: other.secret }, false],
    ['another key of the cluster', Buffer.alloc(32, 8), stored, token, false],
    ['an empty hash', KEY, new Uint8Array(), token, false],
    ['a hash cut short', KEY, stored.subarray(0, 31), token, false],
  ] as const)('compares %s', (_, key, hash, compared, expected) => {
    expect(matchesAccessToken(key, hash, compared)).toBe(expected);
  });
});
