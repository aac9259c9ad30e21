import { chmod, mkdir, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorKindOf } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '../index.js';
import {
  removeTemporaryDirectories,
  StoreChild,
  createTemporaryDirectory,
} from '../testing/index.js';
import { acquireFileLock } from './file-lock.js';

afterAll(removeTemporaryDirectories);

function open(directory: string): Promise<StateStore> {
  return openLmdbStateStore({ directory, clock: new ManualClock() });
}

async function getMode(path: string): Promise<number> {
  return (await stat(path)).mode & 0o777;
}

describe('prepareDataDirectory', () => {
  it('creates the directory with mode 0700 and the data file with mode 0600', async () => {
    const directory = join(await createTemporaryDirectory(), 'a', 'b');
    await (await open(directory)).close();
    expect([await getMode(directory), await getMode(join(directory, 'store.mdb'))]).toEqual([
      0o700, 0o600,
    ]);
  });

  it.each([0o755, 0o750, 0o701, 0o770, 0o704])(
    'refuses a directory with mode %o and names the command that fixes it',
    async (mode) => {
      const directory = await createTemporaryDirectory();
      await chmod(directory, mode);
      await expect(open(directory)).rejects.toMatchObject({
        kind: 'precondition',
        message: `data directory ${directory} has mode 0${mode.toString(8)}, so that other users can access it; run: chmod 700 '${directory}'`,
      });
      await chmod(directory, 0o700);
      await (await open(directory)).close();
    },
  );

  it('refuses a path that is a file or below a file', async () => {
    const file = join(await createTemporaryDirectory(), 'file');
    await writeFile(file, '');
    await expect(open(file)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining(`${file} is not a directory`) as string,
    });
    await expect(open(join(file, 'below'))).rejects.toMatchObject({ kind: 'denied' });
  });

  // Linux answers mkdir in /proc with ENOENT although /proc exists. autofs and some FUSE file
  // systems do the same.
  it.each(process.platform === 'linux' ? ['/proc/cloudless', '/proc/cloudless/a/b'] : [])(
    'fails as denied when the file system creates no directory (%s)',
    async (directory) => {
      await expect(open(directory)).rejects.toMatchObject({
        kind: 'denied',
        message: expect.stringContaining(`data directory ${directory} cannot be created`) as string,
      });
    },
  );
});

describe('lockDirectory', () => {
  it('refuses a second store in the same process, also through a symbolic link, until close', async () => {
    const directory = await createTemporaryDirectory();
    const link = join(await createTemporaryDirectory(), 'link');
    await symlink(directory, link);
    const first = await open(directory);
    for (const path of [directory, link]) {
      await expect(open(path)).rejects.toMatchObject({
        kind: 'unavailable',
        message: `data directory ${directory} is in use by process ${process.pid}; stop it first, or choose another directory`,
      });
    }
    await first.txn([], [{ put: 'a', value: new Uint8Array() }]);
    await first.close();
    const second = await open(link);
    expect(await second.revision()).toBe(1n);
    await second.close();
  });

  it('refuses another process with the id of the holder, until the holder is killed', async () => {
    const directory = await createTemporaryDirectory();
    const holder = StoreChild.start('hold', directory);
    await holder.waitForLine('open');
    await expect(open(directory)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(
        `${directory} is in use by process ${holder.pid};`,
      ) as string,
    });
    await holder.kill();
    const store = await open(directory);
    const refused = await StoreChild.start('hold', directory).waitForEnd();
    expect(refused).toEqual([
      `refused unavailable data directory ${directory} is in use by process ${process.pid}; stop it first, or choose another directory`,
    ]);
    await store.close();
  });

  it('holds no lock after a store could not be opened', async () => {
    const directory = await createTemporaryDirectory();
    await mkdir(join(directory, 'store.mdb'));
    for (let attempt = 0; attempt < 2; attempt += 1)
      await expect(open(directory)).rejects.not.toMatchObject({ kind: 'unavailable' });
  });
});

describe('acquireFileLock', () => {
  it('refuses a second holder until release', async () => {
    const directory = await createTemporaryDirectory();
    const lock = await acquireFileLock(directory);
    await expect(acquireFileLock(directory)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(`process ${process.pid}`) as string,
    });
    await lock.release();
    await (await acquireFileLock(directory)).release();
  });

  it('gives the lock to exactly one of five concurrent callers', async () => {
    const directory = await createTemporaryDirectory();
    const results = await Promise.allSettled(
      Array.from({ length: 5 }, () => acquireFileLock(directory)),
    );
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    const refused = results
      .filter((result) => result.status === 'rejected')
      .map(({ reason }) => errorKindOf(reason));
    expect(refused).toEqual(Array.from({ length: 4 }, () => 'unavailable'));
  });

  it.each([
    { name: 'of an ended process', content: '999999999\nlong ago\nsome boot\n' },
    {
      name: 'of an earlier process with the same id',
      content: `${process.pid}\nlong ago\nsome boot\n`,
    },
    { name: 'without content', content: '' },
  ])('replaces a lock file $name', async ({ content }) => {
    const directory = await createTemporaryDirectory();
    await writeFile(join(directory, 'lock'), content);
    const lock = await acquireFileLock(directory);
    await expect(acquireFileLock(directory)).rejects.toMatchObject({ kind: 'unavailable' });
    await lock.release();
  });
});

describe('a store on a full disk', () => {
  it('refuses writes as exhausted, keeps acknowledged data, and accepts writes when space is free', async () => {
    const directory = await createTemporaryDirectory();
    const lines = await StoreChild.start('fill', directory, 1_024).waitForEnd();
    const count = lines.filter((line) => line.startsWith('ack')).length;
    expect(count).toBeGreaterThan(10);
    expect(lines.slice(count)).toEqual([
      'full exhausted',
      `readable ${count}`,
      `revision ${count + 6}`,
    ]);
    const store = await open(directory);
    expect((await store.range({ prefix: 'key-' })).entries).toHaveLength(count - 5);
    expect((await store.get('after'))?.value).toHaveLength(20_000);
    await store.close();
  });
});
