import { readFile } from 'node:fs/promises';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore } from './index.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

it('README of state-store has an example that runs', async () => {
  // <example>
  const clock = new ManualClock();
  const store = createMemoryStateStore({ clock, historyLimit: 1_000 });

  // Leader election: whoever creates the key leads. The key is deleted when the lease ends.
  const lease = await store.grantLease(2_000);
  const { revision } = await store.txn(
    [{ key: '/leader', is: 'absent' }],
    [{ put: '/leader', value: bytes('one'), lease }],
  );
  await expect(store.txn([{ key: '/leader', is: 'absent' }], [])).rejects.toMatchObject({
    kind: 'conflict',
  });

  // A follower reads a snapshot and watches from its revision.
  const snapshot = await store.range({ prefix: '/leader' });
  await clock.advance(2_000);
  for await (const batch of store.watch({ prefix: '/leader', after: snapshot.revision })) {
    expect(batch).toEqual({
      revision: revision + 1n,
      changes: [{ kind: 'delete', key: '/leader', modRevision: revision + 1n }],
    });
    break;
  }
  await store.close();
  // </example>
});

it('README of state-store contains the example of this spec', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
