import fc from 'fast-check';
import { ManualClock } from '@cloudless/base/testing';
import {
  createMemoryStateStore,
  exportSnapshot,
  importSnapshot,
  verifySnapshot,
  type StateStore,
} from '../index.js';
import { MemoryStorage } from '../memory/memory-storage.js';

const CLUSTER = { clusterId: 'cluster-1', schemaVersion: 7 };

async function aStore(): Promise<StateStore> {
  const store = createMemoryStateStore({ clock: new ManualClock(), historyLimit: 10 });
  for (const key of ['a', 'b', 'c'])
    await store.txn([], [{ put: key, value: Buffer.from(`value of ${key}`) }]);
  return store;
}

async function collectBytes(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts);
}

async function* splitIntoChunks(
  bytes: Uint8Array,
  sizes: readonly number[] = [bytes.length],
): AsyncGenerator<Uint8Array> {
  for (let from = 0, index = 0; from < bytes.length; index += 1) {
    const size = sizes[index % sizes.length] ?? 1;
    yield bytes.subarray(from, from + size);
    from += size;
  }
}

const createSnapshot = async (): Promise<Buffer> =>
  collectBytes(exportSnapshot(await aStore(), CLUSTER));

describe('exportSnapshot and verifySnapshot', () => {
  it('return the same summary with cluster, revision, number of entries, bytes and digest', async () => {
    const chunks = exportSnapshot(await aStore(), CLUSTER);
    let next = await chunks.next();
    let bytes = 0;
    for (; next.done !== true; next = await chunks.next()) bytes += next.value.byteLength;
    const summary = {
      ...CLUSTER,
      revision: 3n,
      entries: 3,
      bytes,
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    };
    expect(next.value).toEqual(summary);
    expect(await verifySnapshot(splitIntoChunks(await createSnapshot()))).toEqual(next.value);
  });

  it('return the same summary for chunks of any sizes', async () => {
    const bytes = await createSnapshot();
    const whole = await verifySnapshot(splitIntoChunks(bytes));
    const sizes = fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 5 });
    await fc.assert(
      fc.asyncProperty(sizes, async (chunkSizes) =>
        expect(await verifySnapshot(splitIntoChunks(bytes, chunkSizes))).toEqual(whole),
      ),
    );
  });

  it('refuse a snapshot with any single bit changed', async () => {
    const bytes = await createSnapshot();
    for (let index = 0; index < bytes.length; index += 1) {
      for (const bit of [1, 128]) {
        const altered = Buffer.from(bytes);
        altered[index] = (altered[index] ?? 0) ^ bit;
        await expect(verifySnapshot(splitIntoChunks(altered))).rejects.toMatchObject({
          kind: 'precondition',
        });
      }
    }
  });

  it('refuse a snapshot truncated anywhere', async () => {
    const bytes = await createSnapshot();
    for (let length = 0; length < bytes.length; length += 1)
      await expect(
        verifySnapshot(splitIntoChunks(bytes.subarray(0, length))),
      ).rejects.toMatchObject({
        kind: 'precondition',
      });
  });

  it('refuse an oversized section without reading it', async () => {
    const bytes = await createSnapshot();
    bytes.writeUInt32BE(0xffff_ffff, 21);
    let chunksRead = 0;
    const endless = async function* (): AsyncGenerator<Uint8Array> {
      yield bytes.subarray(0, 25);
      for (; ; chunksRead += 1) yield Buffer.alloc(1_000_000);
    };
    await expect(verifySnapshot(endless())).rejects.toThrow(
      'a section of 4294967295 bytes is larger than any',
    );
    expect(chunksRead).toBe(0);
  });

  it.each([
    {
      name: 'an empty file',
      change: () => Buffer.alloc(0),
      message: 'not a backup of a Cloudless cluster: the first bytes are not those of a backup',
    },
    {
      name: 'a file that is not a snapshot',
      change: () => Buffer.alloc(5_000, 'x'),
      message: 'not a backup of a Cloudless cluster',
    },
    {
      name: 'a snapshot of another format',
      change: (bytes: Buffer) => (bytes.writeUInt32BE(2, 16), bytes),
      message:
        'the backup has format 2, this program reads format 1; use the version of Cloudless that made the backup',
    },
    {
      name: 'a truncated snapshot',
      change: (bytes: Buffer) => bytes.subarray(0, 70),
      message: 'the backup is damaged: it is truncated after 70 bytes',
    },
    {
      name: 'a snapshot with trailing bytes',
      change: (bytes: Buffer) => Buffer.concat([bytes, bytes]),
      message: 'damaged: bytes follow after its end',
    },
    {
      name: 'a snapshot with an altered value',
      change: (bytes: Buffer) =>
        Buffer.from(bytes.toString('latin1').replace('value of b', 'value of B'), 'latin1'),
      message:
        'the backup is damaged: its SHA-256 does not match; do not trust any part of it, use another backup',
    },
  ])('refuse $name with an error that names the reason', async ({ change, message }) => {
    await expect(
      verifySnapshot(splitIntoChunks(change(await createSnapshot()))),
    ).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining(message) as string,
    });
  });

  it('fail as unavailable when a busy store compacts the revision during the export', async () => {
    const store = await aStore();
    for (let index = 0; index < 200; index += 1)
      await store.txn([], [{ put: `k${index}`, value: new Uint8Array() }]);
    const chunks = exportSnapshot(
      {
        range: async (request) => {
          const page = await store.range(request);
          for (let index = 0; index < 100; index += 1)
            await store.txn([], [{ put: 'a', value: new Uint8Array() }]);
          return page;
        },
      },
      CLUSTER,
    );
    await expect(collectBytes(chunks)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(
        /^the state changed so much .* revision 203 is no longer retained; take the backup again$/,
      ) as string,
    });
  });
});

describe('importSnapshot', () => {
  it('refuses a storage that already has a revision', async () => {
    const storage = new MemoryStorage(10);
    await importSnapshot(storage, splitIntoChunks(await createSnapshot()));
    await expect(importSnapshot(storage, splitIntoChunks(await createSnapshot()))).rejects.toThrow(
      'can only be restored into a new store',
    );
  });
});
