import { readFile } from 'node:fs/promises';
import { assert, createSeededRandom } from '@cloudless/base';
import { createKeyEncryption, openSecret, sealSecret } from './index.js';

it('README of secrets has an example that runs', async () => {
  const random = createSeededRandom(1);
  // <example>
  const kek = createKeyEncryption('file', random.bytes(32), random);
  const masterKey = { id: 'mk-1', bytes: random.bytes(32) };
  const stored = await kek.wrap(masterKey.bytes, masterKey.id); // goes into the store

  const db = { namespace: 'default', name: 'db', uid: 'u1', version: 1 };
  const data = new Map([['password', new TextEncoder().encode('s3cret')]]);
  const envelope = sealSecret(masterKey, db, data, random); // goes into the store

  const bytes = await kek.unwrap(stored, 'mk-1');
  assert(bytes !== undefined, 'the same key-encryption key');
  expect(openSecret({ id: 'mk-1', bytes }, db, envelope)).toEqual(data);
  expect(openSecret({ id: 'mk-1', bytes }, { ...db, version: 2 }, envelope)).toBeUndefined();
  // </example>
});

it('README of secrets contains the example of this spec', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
