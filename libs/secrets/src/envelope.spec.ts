import fc from 'fast-check';
import { createSeededRandom } from '@cloudless/base';
import { openSecret, reEncryptSecret, sealSecret, type SecretContext } from './envelope.js';

const random = createSeededRandom(1);
const key = { id: 'mk-1', bytes: random.bytes(32) };
const context: SecretContext = { namespace: 'default', name: 'db', uid: 'u1', version: 3 };
const data = new Map([['password', Buffer.from('correct horse battery staple')]]);

describe('envelope of a version of a secret', () => {
  it('gives the values back for the same master key and context', () => {
    const arbData = fc.dictionary(fc.string({ minLength: 1 }), fc.uint8Array({ maxLength: 200 }));
    fc.assert(
      fc.property(arbData, (values) => {
        const given = new Map(Object.entries(values));
        const envelope = sealSecret(key, context, given, random);
        expect(openSecret(key, context, envelope)).toEqual(given);
      }),
    );
  });

  it.each<{ name: string; other: Partial<SecretContext> }>([
    { name: 'another namespace', other: { namespace: 'shop' } },
    { name: 'another secret', other: { name: 'web' } },
    { name: 'a secret that was created again', other: { uid: 'u2' } },
    { name: 'another version', other: { version: 4 } },
  ])('does not open as $name', ({ other }) => {
    const envelope = sealSecret(key, context, data, random);
    expect(openSecret(key, { ...context, ...other }, envelope)).toBeUndefined();
  });

  it('does not open with another master key, or under another key id', () => {
    const envelope = sealSecret(key, context, data, random);
    const other = { id: 'mk-1', bytes: random.bytes(32) };
    expect(openSecret(other, context, envelope)).toBeUndefined();
    const renamed = { ...envelope, masterKeyId: 'mk-2' };
    expect(openSecret({ ...key, id: 'mk-2' }, context, renamed)).toBeUndefined();
  });

  it('does not open when any byte was changed', () => {
    const envelope = sealSecret(key, context, data, random);
    for (const part of ['wrappedKey', 'ciphertext'] as const)
      for (let index = 0; index < envelope[part].length; index += 1) {
        const bytes = envelope[part].slice();
        bytes[index] = (bytes[index] ?? 0) ^ 1;
        expect(openSecret(key, context, { ...envelope, [part]: bytes })).toBeUndefined();
      }
  });

  it('opens with the new master key only after a rotation, and with no data key of before', () => {
    const arbData = fc.dictionary(fc.string({ minLength: 1 }), fc.uint8Array({ maxLength: 200 }));
    fc.assert(
      fc.property(arbData, fc.nat({ max: 3 }), (values, rotations) => {
        const given = new Map(Object.entries(values));
        let from = key;
        let envelope = sealSecret(from, context, given, random);
        for (let count = 0; count <= rotations; count += 1) {
          const to = { id: `mk-new-${count}`, bytes: random.bytes(32) };
          const next = reEncryptSecret({ from, to }, context, envelope, random);
          if (next === undefined) throw new Error('not encrypted again');
          expect(openSecret(to, context, next)).toEqual(given);
          expect(openSecret(from, context, next)).toBeUndefined();
          expect(openSecret({ ...from, id: to.id }, context, next)).toBeUndefined();
          // The former data key and ciphertext do not fit the new ones.
          const { wrappedKey, ciphertext } = envelope;
          expect(openSecret(to, context, { ...next, wrappedKey })).toBeUndefined();
          expect(openSecret(to, context, { ...next, ciphertext })).toBeUndefined();
          [from, envelope] = [to, next];
        }
      }),
    );
  });

  it('is not encrypted again with a wrong master key, for another version, or when damaged', () => {
    const envelope = sealSecret(key, context, data, random);
    const to = { id: 'mk-2', bytes: random.bytes(32) };
    const wrong = { id: key.id, bytes: random.bytes(32) };
    expect(reEncryptSecret({ from: wrong, to }, context, envelope, random)).toBeUndefined();
    expect(
      reEncryptSecret({ from: key, to }, { ...context, version: 4 }, envelope, random),
    ).toBeUndefined();
    const ciphertext = envelope.ciphertext.map((byte) => byte ^ 1);
    expect(
      reEncryptSecret({ from: key, to }, context, { ...envelope, ciphertext }, random),
    ).toBeUndefined();
  });

  it('contains neither values nor keys, and differs each time', () => {
    const first = sealSecret(key, context, data, random);
    const second = sealSecret(key, context, data, random);
    const text = Buffer.concat([first.wrappedKey, first.ciphertext]).toString('latin1');
    expect(text).not.toContain('correct horse');
    expect(text).not.toContain('password');
    expect(first.ciphertext).not.toEqual(second.ciphertext);
    expect(first.ciphertext.length).toBe(second.ciphertext.length);
  });
});
