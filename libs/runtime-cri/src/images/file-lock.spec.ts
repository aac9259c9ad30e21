import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { createSeededRandom, sleep } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { readProcess } from '../system/host-processes.js';
import { FileLock, type FileLockOptions } from './file-lock.js';

let directory: string;
beforeEach(
  () => void (directory = path.join(mkdtempSync(path.join(tmpdir(), 'cloudless-lock-')), 'lock')),
);
afterEach(() => rmSync(path.dirname(directory), { recursive: true, force: true }));

const lock = (overrides: Partial<FileLockOptions> = {}): FileLock =>
  new FileLock({ directory, clock: systemClock, ...overrides });

describe('FileLock.run', () => {
  it('admits one holder at a time and leaves one file', async () => {
    const random = createSeededRandom(7);
    let inside = 0;
    let maxInside = 0;
    const turns = Array.from({ length: 40 }, async (_, index) => {
      await sleep(systemClock, random.next() * 50);
      await lock({ self: `p${index}`, isAlive: () => true }).run(async () => {
        maxInside = Math.max(maxInside, (inside += 1));
        await sleep(systemClock, random.next() * 3);
        inside -= 1;
      });
    });
    await Promise.all(turns);
    expect({ maxInside, files: readdirSync(directory).length }).toEqual({ maxInside: 1, files: 1 });
  });

  it('releases the lock when the work fails', async () => {
    await expect(lock().run(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(await lock().run(async () => 'next')).toBe('next');
  });

  it('acquires the lock of a holder that has ended, and rejects while another holder runs', async () => {
    const alive = new Set(['a', 'b']);
    const as = (self: string): FileLock =>
      lock({ self, isAlive: (each) => alive.has(each), waitMs: 60 });
    await as('a').run(async () => {
      await expect(as('b').run(async () => 'in')).rejects.toMatchObject({
        kind: 'unavailable',
        message: `the lock ${directory} is held by another process: a`,
      });
      alive.delete('a');
      expect(await as('b').run(async () => 'in')).toBe('in');
    });
  });

  it('acquires the lock of a killed process and removes the drafts of that process', async () => {
    const child = spawn('sleep', ['1000']);
    const pid = child.pid ?? 0;
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    const holder = `${pid}-${readProcess(pid)?.startToken ?? ''}-${boot}`;
    await lock().run(async () => undefined);
    writeFileSync(path.join(directory, '7'), holder);
    writeFileSync(path.join(directory, `draft-${holder}-1`), '');
    await expect(lock({ waitMs: 60 }).run(async () => 'in')).rejects.toMatchObject({
      message: expect.stringContaining(holder),
    });
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
    expect(await lock().run(async () => 'in')).toBe('in');
    expect(readdirSync(directory)).toEqual(['8']);
  });

  it('gives up its number and waits when another process has created a higher number', async () => {
    await lock().run(async () => undefined); // 1 is free
    const slow = lock({ self: 'slow', isAlive: () => true });
    const patched = slow as unknown as { read(number: number): string | undefined };
    patched.read = () => {
      delete (patched as { read?: unknown }).read;
      // Between the read and the write of this process, two others acquired the lock one after the
      // other, and the second still holds the lock.
      rmSync(path.join(directory, '1'));
      writeFileSync(path.join(directory, '3'), 'other');
      return 'free';
    };
    const inside = slow.run(async () => 'in');
    await sleep(systemClock, 60);
    expect(readdirSync(directory)).toEqual(['3']);
    writeFileSync(path.join(directory, '3'), 'free');
    expect(await inside).toBe('in');
  });
});
