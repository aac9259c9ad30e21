import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  removeTemporaryDirectories,
  StoreChild,
  createTemporaryDirectory,
} from '../testing/index.js';
import { acquireSocketLock } from './socket-lock.js';

afterAll(removeTemporaryDirectories);

const describeOnLinux = process.platform === 'linux' ? describe : describe.skip;

describeOnLinux('acquireSocketLock', () => {
  it('returns undefined to a second caller until the lock is released', async () => {
    const directory = await createTemporaryDirectory();
    const lock = await acquireSocketLock(directory);
    expect(lock?.isHeld()).toBe(true);
    expect(await acquireSocketLock(directory)).toBeUndefined();
    expect(await readdir(directory)).toEqual(['lock-1']);
    await lock?.release();
    const next = await acquireSocketLock(directory);
    expect(await readdir(directory)).toEqual(['lock-2']);
    await next?.release();
  });

  it('gives the lock to exactly one of eight concurrent callers, also after a release', async () => {
    const directory = await createTemporaryDirectory();
    for (let round = 0; round < 5; round += 1) {
      const locks = await Promise.all(
        Array.from({ length: 8 }, () => acquireSocketLock(directory)),
      );
      const held = locks.filter((lock) => lock !== undefined);
      expect(held).toHaveLength(1);
      expect(held[0]?.isHeld()).toBe(true);
      await held[0]?.release();
    }
  });

  it('stays held by a stopped process until that process is killed', async () => {
    const directory = await createTemporaryDirectory();
    const holder = StoreChild.start('hold', directory);
    await holder.waitForLine('open');
    process.kill(holder.pid, 'SIGSTOP');
    expect(await acquireSocketLock(directory)).toBeUndefined();
    await holder.kill();
    const lock = await acquireSocketLock(directory);
    expect(lock?.isHeld()).toBe(true);
    await lock?.release();
  });

  it('reports a deleted or replaced lock as not held', async () => {
    const directory = await createTemporaryDirectory();
    const first = await acquireSocketLock(directory);
    await rm(join(directory, 'lock-1'));
    expect(first?.isHeld()).toBe(false);
    const second = await acquireSocketLock(directory);
    expect([first?.isHeld(), second?.isHeld()]).toEqual([false, true]);
    await first?.release();
    expect(second?.isHeld()).toBe(true);
    await second?.release();
  });

  it('locks a directory whose path is longer than a socket path may be', async () => {
    const directory = join(await createTemporaryDirectory(), 'x'.repeat(120));
    await mkdir(directory);
    const lock = await acquireSocketLock(directory);
    expect(await acquireSocketLock(directory)).toBeUndefined();
    await lock?.release();
  });
});
