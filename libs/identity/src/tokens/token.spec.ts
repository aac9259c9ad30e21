import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { createToken, hashToken, matchesToken, parseToken } from '../index.js';
import type { TokenKind } from '../index.js';

const CA_SHA256 = 'ab'.repeat(32);
const TOKEN_SECRET = Buffer.alloc(32, 7);
const KINDS: readonly TokenKind[] = ['join', 'user'];

describe('createToken', () => {
  it.each([
    ['join', /^cl1\.[a-z0-9]{12}\.[A-Za-z0-9_-]{43}\.[0-9a-f]{64}$/],
    ['user', /^clu1\.[a-z0-9]{12}\.[A-Za-z0-9_-]{43}\.[0-9a-f]{64}$/],
  ] as const)('creates a %s token of the published form', (kind, form) => {
    const { text, id, secret } = createToken(kind, randomBytes, [CA_SHA256]);
    expect(text).toMatch(form);
    expect(parseToken(text)).toEqual({ kind, id, secret, caSha256s: [CA_SHA256] });
  });

  it('creates a token from any random bytes', () => {
    fc.assert(
      fc.property(fc.constantFrom(...KINDS), fc.infiniteStream(fc.nat(255)), (kind, stream) => {
        const random = (byteCount: number): Uint8Array =>
          Uint8Array.from([...stream.take(byteCount)]);
        const { text, id, secret } = createToken(kind, random, [CA_SHA256]);
        expect(parseToken(text)).toEqual({ kind, id, secret, caSha256s: [CA_SHA256] });
      }),
    );
    for (const byte of [0, 255]) {
      const { text } = createToken('join', (count) => Buffer.alloc(count, byte), [CA_SHA256]);
      expect(parseToken(text)).toBeDefined();
    }
  });

  it('names both roots during a rotation of the certificate authority', () => {
    const roots = [CA_SHA256, 'cd'.repeat(32)];
    const { text, id, secret } = createToken('user', randomBytes, roots);
    expect(text).toBe(`clu1.${id}.${secret}.${roots.join('.')}`);
    expect(parseToken(text)).toEqual({ kind: 'user', id, secret, caSha256s: roots });
  });

  it('puts 256 bits into the secret', () => {
    const { secret } = createToken('join', randomBytes, [CA_SHA256]);
    expect(Buffer.from(secret, 'base64url')).toHaveLength(32);
  });
});

describe('parseToken', () => {
  const { text } = createToken('join', randomBytes, [CA_SHA256]);
  const [prefix = '', id = '', secret = '', ca = ''] = text.split('.');

  it.each([
    ['an empty text', ''],
    ['a text without the CA', [prefix, id, secret].join('.')],
    ['another prefix', ['cl2', id, secret, ca].join('.')],
    ['an upper-case id', [prefix, id.toUpperCase().replace(/\d/g, 'A'), secret, ca].join('.')],
    ['a shorter id', [prefix, id.slice(1), secret, ca].join('.')],
    ['a shorter secret', [prefix, id, secret.slice(1), ca].join('.')],
    ['a longer secret', [prefix, id, `A${secret}`, ca].join('.')],
    [
      'a secret whose last character has spare bits',
      [prefix, id, `${'A'.repeat(42)}B`, ca].join('.'),
    ],
    ['an upper-case CA', [prefix, id, secret, ca.toUpperCase()].join('.')],
    ['a space at the end', `${text} `],
    ['a line feed at the end', `${text}\n`],
    ['a fifth part that is no root', `${text}.x`],
    ['a third root', [text, ca, ca].join('.')],
    ['a very long text', text.repeat(10_000)],
  ])('returns undefined for %s', (_, changed) => {
    expect(parseToken(changed)).toBeUndefined();
  });
});

describe('matchesToken', () => {
  const { id, secret } = createToken('join', randomBytes, [CA_SHA256]);
  const stored = hashToken(TOKEN_SECRET, 'join', id, secret);

  it('matches the token that was hashed', () => {
    expect(stored).toHaveLength(32);
    expect(matchesToken(TOKEN_SECRET, stored, 'join', id, secret)).toBe(true);
  });

  const other = createToken('join', randomBytes, [CA_SHA256]);
  it.each([
    ['another kind', TOKEN_SECRET, stored, 'user', id, secret],
    ['another id', TOKEN_SECRET, stored, 'join', other.id, secret],
    ['another secret', TOKEN_SECRET, stored, 'join', id, other.secret],
    ['an empty secret', TOKEN_SECRET, stored, 'join', id, ''],
    ['another key of the cluster', Buffer.alloc(32, 8), stored, 'join', id, secret],
    ['an empty hash', TOKEN_SECRET, new Uint8Array(), 'join', id, secret],
    ['a hash cut short', TOKEN_SECRET, stored.subarray(0, 31), 'join', id, secret],
    ['a longer hash', TOKEN_SECRET, Buffer.concat([stored, stored]), 'join', id, secret],
  ] as const)('does not match %s', (_, tokenSecret, hash, kind, tokenId, tokenText) => {
    expect(matchesToken(tokenSecret, hash, kind, tokenId, tokenText)).toBe(false);
  });

  it('stores the same hash for the same token in every version', () => {
    expect(Buffer.from(hashToken(TOKEN_SECRET, 'user', 'abc', 'def')).toString('hex')).toBe(
      'b1598a252c1312382dc30adea916ff8484313063aa1ef1ab4f745d779aea1bb1',
    );
  });
});
