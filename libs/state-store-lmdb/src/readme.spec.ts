import { readFile } from 'node:fs/promises';
import { ManualClock } from '@cloudless/base/testing';
import { openLmdbStateStore } from './index.js';
import { removeTemporaryDirectories, createTemporaryDirectory } from './testing/index.js';

afterAll(removeTemporaryDirectories);

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

it('README of state-store-lmdb has an example that runs', async () => {
  const directory = await createTemporaryDirectory();
  const clock = new ManualClock();
  // <example>
  const store = await openLmdbStateStore({ directory, clock });
  const { revision } = await store.txn(
    [],
    [{ put: '/workloads/web', value: bytes('three replicas') }],
  );
  await store.close();

  const reopened = await openLmdbStateStore({ directory, clock });
  expect(await reopened.get('/workloads/web')).toEqual({
    key: '/workloads/web',
    value: bytes('three replicas'),
    modRevision: revision,
  });
  await reopened.close();
  // </example>
});

it('README of state-store-lmdb contains the example of this spec', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
