import fc from 'fast-check';
import { ManualClock } from '@cloudless/base/testing';
import {
  createMemoryStateStore,
  exportSnapshot,
  importSnapshot,
  verifySnapshot,
  type StateStore,
} from '../index.js';
import { MemoryStorage } from '../memory-storage.js';

const ABOUT = { clusterId: 'cluster-1', schemaVersion: 7 };

async function aStore(): Promise<StateStore> {
  const store = createMemoryStateStore({ clock: new ManualClock(), historyLimit: 10 });
  for (const key of ['a', 'b', 'c'])
    await store.txn([], [{ put: key, value: Buffer.from(`value of ${key}`) }]);
  return store;
}

async function bytesOf(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts);
}

async function* inPieces(
  bytes: Uint8Array,
  sizes: readonly number[] = [bytes.length],
): AsyncGenerator<Uint8Array> {
  for (let from = 0, index = 0; from < bytes.length; index += 1) {
    const size = sizes[index % sizes.length] ?? 1;
    yield bytes.subarray(from, from + size);
    from += size;
  }
}

const snapshot = async (): Promise<Buffer> => bytesOf(exportSnapshot(await aStore(), ABOUT));

describe('a snapshot', () => {
  it('tells whose it is, of when, and what it came to', async () => {
    const chunks = exportSnapshot(await aStore(), ABOUT);
    let next = await chunks.next();
    let bytes = 0;
    for (; next.done !== true; next = await chunks.next()) bytes += next.value.byteLength;
    const summary = {
      ...ABOUT,
      revision: 3n,
      entries: 3,
      bytes,
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    };
    expect(next.value).toEqual(summary);
    expect(await verifySnapshot(inPieces(await snapshot()))).toEqual(next.value);
  });

  it('is the same in whatever pieces it comes', async () => {
    const bytes = await snapshot();
    const whole = await verifySnapshot(inPieces(bytes));
    const sizes = fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 5 });
    await fc.assert(
      fc.asyncProperty(sizes, async (s) =>
        expect(await verifySnapshot(inPieces(bytes, s))).toEqual(whole),
      ),
    );
  });

  it('is refused when any one bit of it is another', async () => {
    const bytes = await snapshot();
    for (let index = 0; index < bytes.length; index += 1) {
      for (const bit of [1, 128]) {
        const altered = Buffer.from(bytes);
        altered[index] = (altered[index] ?? 0) ^ bit;
        await expect(verifySnapshot(inPieces(altered))).rejects.toMatchObject({
          kind: 'precondition',
        });
      }
    }
  });

  it('is refused when it is cut off anywhere', async () => {
    const bytes = await snapshot();
    for (let length = 0; length < bytes.length; length += 1)
      await expect(verifySnapshot(inPieces(bytes.subarray(0, length)))).rejects.toMatchObject({
        kind: 'precondition',
      });
  });

  it('never makes its reader hold more than one section', async () => {
    const bytes = await snapshot();
    bytes.writeUInt32BE(0xffff_ffff, 21);
    let taken = 0;
    const endless = async function* (): AsyncGenerator<Uint8Array> {
      yield bytes.subarray(0, 25);
      for (; ; taken += 1) yield Buffer.alloc(1_000_000);
    };
    await expect(verifySnapshot(endless())).rejects.toThrow(
      'a section of 4294967295 bytes is larger than any',
    );
    expect(taken).toBe(0);
  });

  it.each([
    {
      name: 'nothing',
      change: () => Buffer.alloc(0),
      says: 'this is no backup of a Cloudless cluster: it does not begin like one',
    },
    {
      name: 'something else',
      change: () => Buffer.alloc(5_000, 'x'),
      says: 'this is no backup of a Cloudless cluster',
    },
    {
      name: 'of another format',
      change: (bytes: Buffer) => (bytes.writeUInt32BE(2, 16), bytes),
      says: 'the backup has format 2, this program reads format 1; use the version that made it',
    },
    {
      name: 'cut off',
      change: (bytes: Buffer) => bytes.subarray(0, 70),
      says: 'the backup is damaged: it is cut off after 70 bytes',
    },
    {
      name: 'longer',
      change: (bytes: Buffer) => Buffer.concat([bytes, bytes]),
      says: 'damaged: bytes follow after its end',
    },
    {
      name: 'altered in a value',
      change: (bytes: Buffer) =>
        Buffer.from(bytes.toString('latin1').replace('value of b', 'value of B'), 'latin1'),
      says: 'the backup is damaged: its SHA-256 does not fit; nothing of it can be trusted, use another one',
    },
  ])('is refused when it is $name', async ({ change, says }) => {
    await expect(verifySnapshot(inPieces(change(await snapshot())))).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining(says) as string,
    });
  });

  it('asks to begin again when its revision is compacted before it was read', async () => {
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
      ABOUT,
    );
    await expect(bytesOf(chunks)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(
        /^the state changed so much .* revision 203 is no longer retained; take the backup again$/,
      ) as string,
    });
  });

  it('is restored into a new store only', async () => {
    const storage = new MemoryStorage(10);
    await importSnapshot(storage, inPieces(await snapshot()));
    await expect(importSnapshot(storage, inPieces(await snapshot()))).rejects.toThrow(
      'into a new store only',
    );
  });
});
