import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { checkMemoryMounts } from './memory-mounts.js';
import { memoryMountsWithin } from './mount-table.js';

const TABLE = [
  '22 1 0:20 / / rw,relatime - overlay overlay rw',
  '30 22 0:30 / /dev/shm rw,nosuid,nodev,noexec shared:5 - tmpfs cloudless rw,size=1024k',
  '31 22 0:31 / /with\\040space rw - tmpfs none rw',
  '32 22 8:1 /srv /data rw master:1 - ext4 /dev/sda1 rw',
].join('\n');
const mount = (containerPath: string, inMemory: boolean): Parameters<typeof checkMemoryMounts>[1][number] => ({
  ...{ containerPath, hostPath: '/volumes/a', readonly: false, selinuxRelabel: true, inMemory },
});

let proc: string;
beforeEach(() => {
  proc = mkdtempSync(path.join(tmpdir(), 'cloudless-proc-'));
  mkdirSync(path.join(proc, '7'));
  writeFileSync(path.join(proc, '7', 'mountinfo'), TABLE);
});
afterEach(() => rmSync(proc, { recursive: true, force: true }));

describe('files in memory', () => {
  it('are told from other mounts, whatever their path', () => {
    expect(memoryMountsWithin('/', TABLE)).toEqual(['/dev/shm', '/with space']);
    expect(memoryMountsWithin('/dev', TABLE)).toEqual(['/dev/shm']);
    expect(memoryMountsWithin('/data', TABLE)).toEqual([]);
  });

  it('are what a container must have where they were asked for', () => {
    expect(() => checkMemoryMounts(7, [mount('/dev/shm', true), mount('/data', false)], proc)).not.toThrow();
    expect(() => checkMemoryMounts(7, [mount('/data', true)], proc)).toThrow(
      '/data is not in memory: the container runtime does not see what this agent mounts at /volumes/a',
    );
  });

  it('are not looked for in a container that has ended', () => {
    expect(() => checkMemoryMounts(8, [mount('/data', true)], proc)).not.toThrow();
  });
});
