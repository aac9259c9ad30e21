import { createSeededRandom } from '@cloudless/base';
import { createKeyEncryption, createPassphraseEncryption } from './key-encryption.js';

const random = createSeededRandom(1);
const key = random.bytes(32);
const fromFile = (seed: number) =>
  createKeyEncryption('file', createSeededRandom(seed).bytes(32), random);
const CHEAP = 2 ** 10;

describe('key-encryption key', () => {
  it('decrypts the keys that it has encrypted', async () => {
    const wrapped = await fromFile(2).wrap(key, 'mk-1');
    expect(wrapped.provider).toBe('file');
    expect(await fromFile(2).unwrap(wrapped, 'mk-1')).toEqual(key);
  });

  it('tells keys of another key-encryption key from damaged keys', async () => {
    const wrapped = await fromFile(2).wrap(key, 'mk-1');
    expect(await fromFile(3).unwrap(wrapped, 'mk-1')).toBeUndefined();
    const bytes = wrapped.bytes.slice();
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    await expect(fromFile(2).unwrap({ ...wrapped, bytes }, 'mk-1')).rejects.toMatchObject({
      kind: 'internal',
    });
    await expect(fromFile(2).unwrap(wrapped, 'mk-2')).rejects.toThrow('mk-2 is damaged');
  });
});

describe('key-encryption key of a passphrase', () => {
  const open = (passphrase: string) => createPassphraseEncryption(passphrase, random, CHEAP);

  it('decrypts with the same passphrase in another process', async () => {
    const wrapped = await open('correct horse').wrap(key, 'mk-1');
    expect(wrapped).toMatchObject({ provider: 'passphrase', cost: CHEAP });
    expect(await open('correct horse').unwrap(wrapped, 'mk-1')).toEqual(key);
    expect(await open('battery staple').unwrap(wrapped, 'mk-1')).toBeUndefined();
  });

  it('keeps the salt of the cluster, so that one derivation serves all keys', async () => {
    const wrapped = await open('correct horse').wrap(key, 'mk-1');
    const next = open('correct horse');
    await next.unwrap(wrapped, 'mk-1');
    expect((await next.wrap(key, 'mk-2')).salt).toEqual(wrapped.salt);
  });

  it('does not derive with a cost that would take the memory of the machine', async () => {
    const wrapped = await open('correct horse').wrap(key, 'mk-1');
    expect(await open('correct horse').unwrap({ ...wrapped, cost: 2 ** 24 }, 'mk-1')).toBe(
      undefined,
    );
  });
});
