import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm, stat, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { lockDataDirectory } from './data-directory.js';

describe('lockDataDirectory', () => {
  let root: string;
  beforeEach(async () => (root = await mkdtemp(join(tmpdir(), 'agent-data-'))));
  afterEach(() => rm(root, { recursive: true, force: true }));

  it('creates a private directory and holds its lock until the lock is released', async () => {
    const path = join(root, 'a', 'b');
    const data = await lockDataDirectory(path);
    expect((await stat(path)).mode & 0o777).toBe(0o700);
    await expect(lockDataDirectory(path)).rejects.toMatchObject({
      kind: 'precondition',
      message: `data directory ${path} is in use by another agent, process ${process.pid}`,
    });
    await data.release();
    await (await lockDataDirectory(path)).release();
  });

  it('detects the lock under another path of the same directory', async () => {
    const path = join(root, 'a');
    const data = await lockDataDirectory(path);
    await symlink(path, join(root, 'other'));
    await expect(lockDataDirectory(join(root, 'other'))).rejects.toMatchObject({
      kind: 'precondition',
    });
    await data.release();
  });

  // Writes to /dev/full, which Linux has, fail as on a full disk.
  const onLinux = existsSync('/dev/full') ? it : it.skip;
  onLinux('is locked also when the disk is full, without the process id', async () => {
    const path = join(root, 'a');
    await (await lockDataDirectory(path)).release();
    await symlink('/dev/full', join(path, 'agent.pid'));
    const data = await lockDataDirectory(path);
    await expect(lockDataDirectory(path)).rejects.toMatchObject({
      message: `data directory ${path} is in use by another agent`,
    });
    await data.release();
  });

  it('rejects a directory that other users can read', async () => {
    await chmod(root, 0o755);
    await expect(lockDataDirectory(root)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining(`chmod 700 ${root}`),
    });
  });
});
