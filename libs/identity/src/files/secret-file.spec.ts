import { execFile } from 'node:child_process';
import {
  chmod,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  makePrivateDirectory,
  readSecretFile,
  replaceSecretFile,
  writeSecretFile,
} from './index.js';
import { MAX_SECRET_BYTES, isPrivate, isTrustedOwner } from './secret-file.js';

describe('secret files', () => {
  let directory = '';
  let path = '';
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'cloudless-secret-'));
    path = join(directory, 'node.key');
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  const modeOf = async (file: string): Promise<string> =>
    ((await stat(file)).mode & 0o777).toString(8);

  describe('writeSecretFile', () => {
    it('creates a file of mode 600 that readSecretFile reads', async () => {
      await writeSecretFile(path, 'secret');
      expect(await modeOf(path)).toBe('600');
      expect(Buffer.from(await readSecretFile(path)).toString()).toBe('secret');
      expect(await readdir(directory)).toEqual(['node.key']);
    });

    it('never overwrites a file', async () => {
      await writeSecretFile(path, 'first');
      await expect(writeSecretFile(path, 'second')).rejects.toMatchObject({
        kind: 'exists',
        message: expect.stringContaining(`${path} cannot be created: EEXIST`),
      });
      expect(await readFile(path, 'utf8')).toBe('first');
      expect(await readdir(directory)).toEqual(['node.key']);
    });

    it('does not follow a symbolic link', async () => {
      const target = join(directory, 'target');
      await symlink(target, path);
      await expect(writeSecretFile(path, 'secret')).rejects.toMatchObject({ kind: 'exists' });
      await expect(stat(target)).rejects.toMatchObject({ code: 'ENOENT' });
    });

    it('names the file when the directory is missing', async () => {
      const missing = join(directory, 'missing', 'node.key');
      await expect(writeSecretFile(missing, 'secret')).rejects.toMatchObject({
        kind: 'notFound',
        message: expect.stringContaining(`${missing} cannot be written: ENOENT`),
      });
    });
  });

  it.each([
    ['writeSecretFile', writeSecretFile],
    ['replaceSecretFile', replaceSecretFile],
  ])('%s removes what an interrupted process left behind', async (_, write) => {
    await writeFile(`${path}.new`, 'half', { mode: 0o644 });
    await write(path, 'whole');
    expect(await readFile(path, 'utf8')).toBe('whole');
    expect(await modeOf(path)).toBe('600');
    expect(await readdir(directory)).toEqual(['node.key']);
  });

  describe('replaceSecretFile', () => {
    it('replaces a file, and creates a missing file', async () => {
      await replaceSecretFile(path, 'first');
      await replaceSecretFile(path, 'second');
      expect(await readFile(path, 'utf8')).toBe('second');
      expect(await modeOf(path)).toBe('600');
    });

    it('replaces a symbolic link and leaves its target alone', async () => {
      const target = join(directory, 'target');
      await writeFile(target, 'target');
      await symlink(target, path);
      await replaceSecretFile(path, 'secret');
      expect(await readFile(target, 'utf8')).toBe('target');
      expect(Buffer.from(await readSecretFile(path)).toString()).toBe('secret');
    });

    it('keeps the old file and no second one when the new one cannot be put in place', async () => {
      await mkdir(path);
      await expect(replaceSecretFile(path, 'secret')).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringContaining(`${path} cannot be replaced`),
      });
      expect(await readdir(directory)).toEqual(['node.key']);
    });
  });

  describe('readSecretFile', () => {
    it.each([0o640, 0o604, 0o660, 0o601, 0o666])('refuses the mode %o', async (mode) => {
      await writeFile(path, 'secret');
      await chmod(path, mode);
      const text = `0${mode.toString(8)}`;
      await expect(readSecretFile(path)).rejects.toMatchObject({
        kind: 'precondition',
        message: `${path} holds a secret and has mode ${text}, so that other users can access it; run: chmod 600 ${path}`,
      });
    });

    it('quotes a path with spaces and quotes in the command', async () => {
      const odd = join(directory, "it's here");
      await writeFile(odd, 'secret');
      await chmod(odd, 0o644);
      await expect(readSecretFile(odd)).rejects.toThrow(
        `run: chmod 600 '${directory}/it'\\''s here'`,
      );
    });

    it.each([0o600, 0o400, 0o700])('accepts the mode %o', async (mode) => {
      await writeFile(path, 'secret');
      await chmod(path, mode);
      expect(Buffer.from(await readSecretFile(path)).toString()).toBe('secret');
    });

    it('refuses a symbolic link, a directory and a named pipe without waiting', async () => {
      const link = join(directory, 'link');
      await writeSecretFile(path, 'secret');
      await symlink(path, link);
      await expect(readSecretFile(link)).rejects.toThrow(`${link} is a symbolic link; a file with`);
      await expect(readSecretFile(directory)).rejects.toThrow(`${directory} is not a regular file`);
      const pipe = join(directory, 'pipe');
      await promisify(execFile)('mkfifo', ['-m', '600', pipe]);
      await expect(readSecretFile(pipe)).rejects.toThrow(`${pipe} is not a regular file`);
    });

    it('reports a missing file as notFound', async () => {
      await expect(readSecretFile(path)).rejects.toMatchObject({
        kind: 'notFound',
        message: expect.stringContaining(`${path} cannot be read: ENOENT`),
      });
    });

    it('reads at most 64 KiB', async () => {
      await writeSecretFile(path, new Uint8Array(MAX_SECRET_BYTES));
      expect(await readSecretFile(path)).toHaveLength(MAX_SECRET_BYTES);
      await replaceSecretFile(path, new Uint8Array(MAX_SECRET_BYTES + 1));
      await expect(readSecretFile(path)).rejects.toThrow(`${path} is larger than 65536 bytes`);
    });
  });

  it.each([
    { uid: 1000, self: 1000, trusted: true },
    { uid: 0, self: 1000, trusted: true },
    { uid: 1000, self: 0, trusted: true },
    { uid: 1001, self: 1000, trusted: false },
  ])('a file of user $uid is trusted by user $self: $trusted', ({ uid, self, trusted }) => {
    expect(isTrustedOwner(uid, self)).toBe(trusted);
  });

  it.each([
    { path: '/run/credentials/c.service/etcd.key', uid: 0, mode: 0o440, expected: true },
    { path: '/run/credentials/c.service/etcd.key', uid: 0, mode: 0o400, expected: true },
    { path: '/run/credentials/c.service/etcd.key', uid: 0, mode: 0o444, expected: false },
    { path: '/run/credentials/c.service/etcd.key', uid: 0, mode: 0o460, expected: false },
    { path: '/run/credentials/c.service/etcd.key', uid: 1000, mode: 0o440, expected: false },
    { path: '/run/credentials/../etcd.key', uid: 0, mode: 0o440, expected: false },
    { path: '/etc/etcd.key', uid: 0, mode: 0o440, expected: false },
  ])('a file $path of user $uid with mode $mode is private: $expected', ({ path, ...file }) => {
    expect(isPrivate(path, { ...file, mode: 0o100_000 | file.mode })).toBe(file.expected);
  });

  describe('makePrivateDirectory', () => {
    it('creates a directory of mode 700 and accepts the directory again', async () => {
      const created = join(directory, 'identity');
      await makePrivateDirectory(created);
      await makePrivateDirectory(created);
      expect(await modeOf(created)).toBe('700');
    });

    it('refuses a directory that others can access, a file, and a missing parent', async () => {
      const open = join(directory, 'open');
      await mkdir(open);
      await chmod(open, 0o750);
      await expect(makePrivateDirectory(open)).rejects.toThrow(
        `the directory ${open} holds secrets and has mode 0750, so that other users can access it; run: chmod 700 ${open}`,
      );
      await writeFile(path, '');
      await expect(makePrivateDirectory(path)).rejects.toThrow(`${path} is not a directory`);
      await expect(makePrivateDirectory(join(directory, 'a', 'b'))).rejects.toMatchObject({
        kind: 'notFound',
      });
    });
  });
});
