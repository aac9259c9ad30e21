import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { acquireDirectoryLock, findLockHolder } from './directory-lock.js';
import { readBootId, readStartToken } from './process-identity.js';

const RUNNING = {
  pid: process.pid,
  startToken: readStartToken(process.pid),
  bootId: readBootId(),
};
let directory: string;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-lock-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

const files = (): readonly string[] => readdirSync(directory).sort();

describe('acquireDirectoryLock', () => {
  it('returns false while the process that acquired the lock runs', () => {
    expect(acquireDirectoryLock(directory)).toBe(true);
    expect(acquireDirectoryLock(directory)).toBe(false);
    expect(files()).toEqual(['lock.1']);
  });

  it('replaces the lock of a running predecessor, and of no other process', () => {
    writeFileSync(path.join(directory, 'lock.1'), JSON.stringify(RUNNING));
    expect(acquireDirectoryLock(directory, process.pid + 1)).toBe(false);
    expect(acquireDirectoryLock(directory, process.pid)).toBe(true);
    expect(files()).toEqual(['lock.2']);
  });

  it.each([
    { name: 'of an earlier boot', holder: { ...RUNNING, bootId: 'earlier' } },
    { name: 'of an earlier process with the same id', holder: { ...RUNNING, startToken: '1' } },
    { name: 'without a start time', holder: { pid: process.pid } },
  ])('replaces a lock $name', ({ holder }) => {
    writeFileSync(path.join(directory, 'lock.7'), JSON.stringify(holder));
    writeFileSync(path.join(directory, 'lock.6'), JSON.stringify(RUNNING));
    expect(acquireDirectoryLock(directory)).toBe(true);
    expect(files()).toEqual(['lock.8']);
  });

  it('replaces a damaged lock', () => {
    writeFileSync(path.join(directory, 'lock.3'), '{');
    expect(acquireDirectoryLock(directory)).toBe(true);
  });
});

describe('findLockHolder', () => {
  it.each([
    { name: 'the process that holds the lock', locks: { 'lock.4': RUNNING }, pid: process.pid },
    { name: 'no process for a void lock', locks: { 'lock.4': { ...RUNNING, startToken: '1' } } },
    {
      name: 'no process for a lock that a void lock has replaced',
      locks: { 'lock.4': {}, 'lock.3': RUNNING },
    },
    { name: 'no process without a lock', locks: {} },
  ])('returns $name', ({ locks, pid }) => {
    for (const [name, holder] of Object.entries(locks))
      writeFileSync(path.join(directory, name), JSON.stringify(holder));
    expect(findLockHolder(directory)).toBe(pid);
  });

  it('returns no process for a directory that does not exist', () => {
    expect(findLockHolder(path.join(directory, 'missing'))).toBeUndefined();
  });
});
