import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { ManualClock } from '@cloudless/base/testing';
import type { AgentIdentity, StoredReplica } from '@cloudless/agent-core';
import { DiskReserve, writeFlushed } from './disk-reserve.js';
import { FileAgentStore } from './file-agent-store.js';

const RESERVE_BYTES = 2 ** 20;

const replica: StoredReplica = {
  replicaId: 'web-1',
  workloadUid: 'web',
  start: new Uint8Array(300),
  heldRevision: 10n,
  bootId: 'boot-1',
  progress: {
    ...{ phase: 'running', reason: '', restarts: 0, failures: 0 },
    ...{ containerEnded: false, ready: true },
  },
};
const stopped: StoredReplica = { ...replica, end: new Uint8Array(100), heldRevision: 20n };
const identity: AgentIdentity = { nodeId: 'n', instanceId: 'i', highestEpoch: 1n };

/** A file system that can be full. */
class FullDisk {
  code: 'ENOSPC' | 'EDQUOT' | 'EIO' = 'ENOSPC';
  isFull = false;
  /** False on a file system that needs free space also to overwrite a file. */
  overwritesInPlace = true;
  /** True while another process takes everything that the agent gives back. */
  isContested = false;

  constructor(private readonly directory: string) {}

  readonly writeFile: typeof writeFlushed = async (path, content, flags) => {
    const isReleased = (await listReserve(this.directory)).length === 0;
    const hasSpace =
      flags === 'r+'
        ? this.overwritesInPlace && (await stat(path)).blocks * 512 >= content.length
        : isReleased && !this.isContested;
    if (!this.isFull || hasSpace) return writeFlushed(path, content, flags);
    await writeFile(path, content.subarray(0, content.length / 2));
    throw Object.assign(new Error(`${this.code}: write`), { code: this.code });
  };
}

const listReserve = (directory: string): Promise<readonly string[]> =>
  readdir(join(directory, 'reserve')).catch(() => []);

async function measureReserve(directory: string): Promise<number> {
  const files = await listReserve(directory);
  const sizes = await Promise.all(
    files.map(async (name) => (await stat(join(directory, 'reserve', name))).blocks * 512),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

describe('FileAgentStore on a full disk', () => {
  let directory: string;
  let disk: FullDisk;
  let store: FileAgentStore;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'full-disk-'));
    disk = new FullDisk(directory);
    store = new FileAgentStore(directory, { writeFile: disk.writeFile });
    await store.load();
    await store.saveReplica(replica);
    await store.saveIdentity(identity);
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  const load = () => new FileAgentStore(directory).load();

  it('has a reserve of 1 MiB that is really allocated', async () => {
    expect(await measureReserve(directory)).toBeGreaterThanOrEqual(RESERVE_BYTES);
  });

  it.each(['ENOSPC', 'EDQUOT'] as const)(
    'refuses a save with %s as exhausted, keeps the old value and leaves no draft',
    async (code) => {
      Object.assign(disk, { isFull: true, code });
      await expect(
        store.saveReplica({ ...replica, progress: { ...replica.progress, restarts: 1 } }),
      ).rejects.toMatchObject({
        kind: 'exhausted',
        message: `no space left for ${join(directory, 'replicas', 'web-1.json')}`,
      });
      await expect(store.saveReplica({ ...replica, replicaId: 'web-2' })).rejects.toMatchObject({
        kind: 'exhausted',
      });
      expect(await readdir(join(directory, 'replicas'))).toEqual(['web-1.json']);
      expect(await load()).toEqual({ identity, replicas: [replica] });
      expect(await measureReserve(directory)).toBeGreaterThanOrEqual(RESERVE_BYTES);
    },
  );

  it('saves a stop order with the reserve while another process takes all free space', async () => {
    Object.assign(disk, { isFull: true, isContested: true });
    await store.saveReplica(stopped, { mayUseReserve: true });
    expect(await load()).toEqual({ identity, replicas: [stopped] });
  });

  it('saves any number of epochs with the reserve, as the replaced file goes back to it', async () => {
    Object.assign(disk, { isFull: true, isContested: true });
    for (let epoch = 2n; epoch < 50n; epoch += 1n)
      await store.saveIdentity({ ...identity, highestEpoch: epoch });
    expect((await load()).identity?.highestEpoch).toBe(49n);
    expect(await listReserve(directory)).toHaveLength(8);
  });

  it('saves stop orders of several replicas at the same time', async () => {
    const ids = Array.from({ length: 30 }, (_, index) => `web-${index + 1}`);
    await Promise.all(ids.map((replicaId) => store.saveReplica({ ...replica, replicaId })));
    Object.assign(disk, { isFull: true, isContested: true });
    const saves = ids.map((replicaId) =>
      store.saveReplica({ ...stopped, replicaId }, { mayUseReserve: true }),
    );
    const outcomes = await Promise.allSettled(saves);
    expect(outcomes.map(({ status }) => status)).toEqual(ids.map(() => 'fulfilled'));
    const { replicas } = await load();
    const expected = ids.map((replicaId) => ({ ...stopped, replicaId }));
    expect(replicas).toHaveLength(ids.length);
    expect(replicas).toEqual(expect.arrayContaining(expected));
  });

  it('gives the reserve back for an order that is larger than each of its files', async () => {
    disk.isFull = true;
    const large = { ...stopped, end: new Uint8Array(200_000) };
    await store.saveReplica(large, { mayUseReserve: true });
    expect((await load()).replicas).toEqual([large]);
  });

  it('gives the reserve back on a file system that never overwrites in place', async () => {
    Object.assign(disk, { isFull: true, overwritesInPlace: false });
    await store.saveReplica(stopped, { mayUseReserve: true });
    expect((await load()).replicas).toEqual([stopped]);
    expect(await listReserve(directory)).toEqual([]);
  });

  it('refuses a stop order as exhausted when the reserve is not enough, and keeps the old value', async () => {
    Object.assign(disk, { isFull: true, overwritesInPlace: false, isContested: true });
    await expect(store.saveReplica(stopped, { mayUseReserve: true })).rejects.toMatchObject({
      kind: 'exhausted',
    });
    expect(await readdir(join(directory, 'replicas'))).toEqual(['web-1.json']);
    expect((await load()).replicas).toEqual([replica]);
  });

  it('does not use the reserve for another failure', async () => {
    Object.assign(disk, { isFull: true, code: 'EIO' });
    await expect(store.saveReplica(stopped, { mayUseReserve: true })).rejects.toThrow('EIO: write');
    expect(await measureReserve(directory)).toBeGreaterThanOrEqual(RESERVE_BYTES);
  });

  it('makes the reserve again after a removal and after a save, once there is space', async () => {
    Object.assign(disk, { isFull: true, overwritesInPlace: false });
    await store.saveReplica(stopped, { mayUseReserve: true });
    disk.isFull = false;
    await store.removeReplica('web-1');
    expect(await measureReserve(directory)).toBeGreaterThanOrEqual(RESERVE_BYTES);
    disk.isFull = true;
    await store.saveIdentity({ ...identity, highestEpoch: 2n });
    disk.isFull = false;
    await store.saveIdentity({ ...identity, highestEpoch: 3n });
    expect(await measureReserve(directory)).toBeGreaterThanOrEqual(RESERVE_BYTES);
  });

  it('never overwrites a stored file whose name is also in the reserve after a crash', async () => {
    const reserve = new DiskReserve(directory);
    const file = join(directory, 'replicas', 'web-1.json');
    const [name = ''] = await listReserve(directory);
    await rm(join(directory, 'reserve', name));
    await reserve.returnReplaced(file, name); // the agent was killed before the rename
    Object.assign(disk, { isFull: true, isContested: true });
    for (let epoch = 2n; epoch < 20n; epoch += 1n)
      await store.saveIdentity({ ...identity, highestEpoch: epoch });
    expect((await load()).replicas).toEqual([replica]);
    await new DiskReserve(directory).refill();
    expect((await load()).replicas).toEqual([replica]);
    expect((await stat(file)).nlink).toBe(1);
  });

  describe('mark of a stopped replica', () => {
    it('marks a replica without writing, and the next agent loads everything else unchanged', async () => {
      Object.assign(disk, { isFull: true, isContested: true });
      await store.markStopped('web-1');
      await store.markStopped('web-1');
      expect(await load()).toEqual({ identity, replicas: [{ ...replica, stopped: true }] });
    });

    it('keeps a replica stopped when a crash interrupts a save after the mark', async () => {
      await store.markStopped('web-1');
      const [name = ''] = await readdir(join(directory, 'replicas'));
      const mark = await readFile(join(directory, 'replicas', name));
      await store.saveReplica(stopped);
      expect(await load()).toEqual({ identity, replicas: [stopped] });
      await writeFile(join(directory, 'replicas', name), mark); // the crash came before its removal
      expect(await load()).toEqual({ identity, replicas: [{ ...stopped, stopped: true }] });
      const next = new FileAgentStore(directory);
      await next.load();
      await next.saveReplica({ ...replica, stopped: true });
      expect(await load()).toEqual({ identity, replicas: [{ ...replica, stopped: true }] });
    });

    it('keeps the mark when a later save says nothing of a stop', async () => {
      await store.markStopped('web-1');
      await store.saveReplica(replica);
      expect((await load()).replicas).toEqual([{ ...replica, stopped: true }]);
    });

    it('removes the mark with its replica, and ignores the mark of an unknown id', async () => {
      await store.markStopped('nobody-1');
      await store.markStopped('web-1');
      await store.removeReplica('web-1');
      expect(await load()).toEqual({ identity, replicas: [] });
      expect(await readdir(join(directory, 'replicas'))).toEqual([]);
    });
  });
});

describe('DiskReserve', () => {
  let directory: string;
  beforeEach(async () => (directory = await mkdtemp(join(tmpdir(), 'disk-reserve-'))));
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it('is made once, also by two callers at the same time, and kept by the next agent', async () => {
    const reserve = new DiskReserve(directory);
    await Promise.all([reserve.refill(), reserve.refill()]);
    const inodes = async () =>
      Promise.all(
        (await listReserve(directory)).map(
          async (name) => (await stat(join(directory, 'reserve', name))).ino,
        ),
      );
    const before = await inodes();
    expect(before).toHaveLength(8);
    await new DiskReserve(directory).refill();
    expect(await inodes()).toEqual(before);
  });

  it('is filled again after a writer has taken a file while the missing files were made', async () => {
    let calls = 0;
    const reserve: DiskReserve = new DiskReserve(directory, {
      readFreeBytes: async () => {
        calls += 1;
        if (calls === 5) await reserve.take(join(directory, 'draft'), 1);
        return 2 ** 40;
      },
    });
    await reserve.refill();
    expect(await listReserve(directory)).toHaveLength(7);
    await reserve.refill();
    expect(await listReserve(directory)).toHaveLength(8);
  });

  it('refills the reserve after growing delays under a quota, and completely after its end', async () => {
    const clock = new ManualClock();
    let attempts = 0;
    let hasQuota = true;
    const reserve = new DiskReserve(directory, {
      clock,
      readFreeBytes: async () => 2 ** 40,
      writeFile: async (path, content, flags) => {
        if (!hasQuota) return writeFlushed(path, content, flags);
        attempts += 1;
        throw Object.assign(new Error('EDQUOT: write'), { code: 'EDQUOT' });
      },
    });
    const attemptsOfSaves = async (seconds: number): Promise<number> => {
      const before = attempts;
      for (let saves = 0; saves < 10 * seconds; saves += 1) {
        await reserve.refill();
        await clock.advance(100);
      }
      return attempts - before;
    };
    expect(await attemptsOfSaves(1)).toBe(1);
    expect(await attemptsOfSaves(14)).toBe(3); // at 1 s, 3 s and 7 s
    await attemptsOfSaves(100);
    expect(await attemptsOfSaves(240)).toBe(4); // once a minute
    hasQuota = false;
    await attemptsOfSaves(60);
    expect(await listReserve(directory)).toHaveLength(8);
  });

  it('is not made while there is little space, so that others have the last space', async () => {
    let freeBytes = 4 * RESERVE_BYTES - 1;
    const reserve = new DiskReserve(directory, { readFreeBytes: async () => freeBytes });
    await reserve.refill();
    expect(await listReserve(directory)).toEqual([]);
    freeBytes += 1;
    await reserve.refill();
    expect(await listReserve(directory)).toHaveLength(8);
  });

  it.each([
    { freeBytes: 128 * 1024 - 1, files: 7 },
    { freeBytes: 128 * 1024, files: 8 },
  ])('leaves $files files for a start with $freeBytes free bytes', async ({ freeBytes, files }) => {
    await new DiskReserve(directory).refill();
    await new DiskReserve(directory, { readFreeBytes: async () => freeBytes }).makeRoomToStart();
    expect(await listReserve(directory)).toHaveLength(files);
  });

  it('has no file for more bytes than it holds', async () => {
    const reserve = new DiskReserve(directory);
    await expect(reserve.take(join(directory, 'draft'), 1)).rejects.toMatchObject({
      kind: 'exhausted',
    });
    await reserve.refill();
    await expect(reserve.take(join(directory, 'draft'), 2 ** 20)).rejects.toMatchObject({
      kind: 'exhausted',
    });
    expect(await listReserve(directory)).toHaveLength(8);
  });
});
