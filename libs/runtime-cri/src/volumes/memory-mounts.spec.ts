import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { readMachineFeatures } from '../system/machine-features.js';
import { checkMemoryMounts, mountMemory, unmountMemory } from './memory-mounts.js';
import { findMemoryMountsWithin } from './mount-table.js';

const TABLE = [
  '22 1 0:20 / / rw,relatime - overlay overlay rw',
  '30 22 0:30 / /dev/shm rw,nosuid,nodev,noexec shared:5 - tmpfs cloudless rw,size=1024k',
  '31 22 0:31 / /with\\040space rw - tmpfs none rw',
  '32 22 8:1 /srv /data rw master:1 - ext4 /dev/sda1 rw',
].join('\n');
/** Mount table of the agent. */
const OWN_TABLE = [
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
  for (const [process, table] of Object.entries({ 7: TABLE, self: OWN_TABLE })) {
    mkdirSync(path.join(proc, process));
    writeFileSync(path.join(proc, process, 'mountinfo'), table);
  }
});
afterEach(() => rmSync(proc, { recursive: true, force: true }));

describe('tmpfs mounts', () => {
  it('are distinguished from other mounts, whatever their path', () => {
    expect(findMemoryMountsWithin('/', TABLE)).toEqual(['/dev/shm', '/with space']);
    expect(findMemoryMountsWithin('/dev', TABLE)).toEqual(['/dev/shm']);
    expect(findMemoryMountsWithin('/data', TABLE)).toEqual([]);
  });

  it('are found in the container for which they were mounted', () => {
    const mounts = [mount('/dev/shm', '/volumes/shm'), mount('/data', '/volumes/a', false)];
    expect(() => checkMemoryMounts(7, mounts, proc)).not.toThrow();
  });

  it('are found where the image has a symbolic link on the way to the mount point', () => {
    expect(() => checkMemoryMounts(7, [mount('/var/run/shm', '/volumes/shm')], proc)).not.toThrow();
  });

  it.each([
    { name: 'that the container does not see', hostPath: '/volumes/other' },
    { name: 'that are not mounted', hostPath: '/volumes/none' },
  ])('$name are reported with mount point and path on the node', ({ hostPath }) => {
    expect(() => checkMemoryMounts(7, [mount('/data', hostPath)], proc)).toThrow(
      `/data is not in memory: the container runtime does not see what this agent mounts at ${hostPath}`,
    );
  });

  it('are not checked in an exited container', () => {
    expect(() => checkMemoryMounts(8, [mount('/data', '/volumes/a')], proc)).not.toThrow();
  });

  const canMount = readMachineFeatures().memoryMounts;
  (canMount ? it : it.skip)('are mounted once and unmounted below a symbolic link', async () => {
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
  });
});
