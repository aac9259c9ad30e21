import { readFile } from 'node:fs/promises';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore } from './index.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

it('does what the README shows', async () => {
  // <example>
  const clock = new ManualClock();
  const store = createMemoryStateStore({ clock, historyLimit: 1_000 });

  // A leader is whoever creates the key; it goes with the lease.
  const lease = await store.grantLease(2_000);
  const { revision } = await store.txn(
    [{ key: '/leader', is: 'absent' }],
    [{ put: '/leader', value: bytes('one'), lease }],
  );
  await expect(store.txn([{ key: '/leader', is: 'absent' }], [])).rejects.toMatchObject({
    kind: 'conflict',
  });

  // Whoever wants to follow reads a snapshot and watches from there.
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

it('is what the README shows', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
