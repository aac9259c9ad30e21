import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { readMachineFeatures } from '../system/machine-features.js';
import { checkMemoryMounts, mountMemory, unmountMemory } from './memory-mounts.js';
import { findMemoryMountsWithin } from './mount-table.js';

/** Mount table of a container. */
const CONTAINER_TABLE = [
  '22 1 0:20 / / rw,relatime - overlay overlay rw',
  '30 22 0:30 / /dev/shm rw,nosuid,nodev,noexec shared:5 - tmpfs cloudless rw,size=1024k',
  '31 22 0:31 / /with\\040space rw - tmpfs none rw',
  '32 22 8:1 /srv /data rw master:1 - ext4 /dev/sda1 rw',
].join('\n');
/** Mount table of the agent. */
const AGENT_TABLE = [
  '22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw',
  '40 22 0:30 / /volumes/shm rw,nosuid,nodev,noexec shared:5 - tmpfs cloudless rw,size=1024k',
  '41 22 0:99 / /volumes/other rw - tmpfs cloudless rw',
].join('\n');
const mount = (
  containerPath: string,
  hostPath: string,
  inMemory = true,
): Parameters<typeof checkMemoryMounts>[1][number] => ({
  ...{ containerPath, hostPath, readonly: false, selinuxRelabel: true, inMemory },
});

let proc: string;
beforeEach(() => {
  proc = mkdtempSync(path.join(tmpdir(), 'cloudless-proc-'));
  for (const [process, table] of Object.entries({ 7: CONTAINER_TABLE, self: AGENT_TABLE })) {
    mkdirSync(path.join(proc, process));
    writeFileSync(path.join(proc, process, 'mountinfo'), table);
  }
});
afterEach(() => rmSync(proc, { recursive: true, force: true }));

describe('findMemoryMountsWithin', () => {
  it('returns only mounts of type tmpfs at or below the directory', () => {
    expect(findMemoryMountsWithin('/', CONTAINER_TABLE)).toEqual(['/dev/shm', '/with space']);
    expect(findMemoryMountsWithin('/dev', CONTAINER_TABLE)).toEqual(['/dev/shm']);
    expect(findMemoryMountsWithin('/data', CONTAINER_TABLE)).toEqual([]);
  });
});

describe('checkMemoryMounts', () => {
  it('passes when the container has the tmpfs of the agent', () => {
    const mounts = [mount('/dev/shm', '/volumes/shm'), mount('/data', '/volumes/a', false)];
    expect(() => checkMemoryMounts(7, mounts, proc)).not.toThrow();
  });

  it('passes when a symbolic link in the image changes the path of the mount point', () => {
    expect(() => checkMemoryMounts(7, [mount('/var/run/shm', '/volumes/shm')], proc)).not.toThrow();
  });

  it.each([
    { name: 'the container does not have the tmpfs', hostPath: '/volumes/other' },
    { name: 'the agent has not mounted a tmpfs', hostPath: '/volumes/none' },
  ])('throws with mount point and path on the node when $name', ({ hostPath }) => {
    expect(() => checkMemoryMounts(7, [mount('/data', hostPath)], proc)).toThrow(
      `/data is not in memory: the container runtime does not see what this agent mounts at ${hostPath}`,
    );
  });

  it('passes when the process of the container has ended', () => {
    expect(() => checkMemoryMounts(8, [mount('/data', '/volumes/a')], proc)).not.toThrow();
  });
});

describe('mountMemory and unmountMemory', () => {
  const canMount = readMachineFeatures().memoryMounts;
  (canMount ? it : it.skip)(
    'mount a tmpfs only once, and unmount it below a symbolic link',
    async () => {
      const real = path.join(proc, 'real');
      const link = path.join(proc, 'link');
      mkdirSync(path.join(real, 'cache'), { recursive: true });
      symlinkSync(real, link);
      try {
        for (let turn = 0; turn < 2; turn += 1)
          await mountMemory('cache', path.join(link, 'cache'), { mode: 0o700 });
        expect(findMemoryMountsWithin(link)).toEqual([path.join(realpathSync(real), 'cache')]);
      } finally {
        await unmountMemory(link);
      }
      expect(findMemoryMountsWithin(real)).toEqual([]);
    },
  );
});
