import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, stat, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { replaceFileSync } from './replace-file.js';

// Writes to /dev/full, which Linux has, fail as on a full disk.
const onLinux = existsSync('/dev/full') ? it : it.skip;

describe('replaceFileSync', () => {
  let directory: string;
  let file: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'replace-file-'));
    file = join(directory, 'settings.json');
    replaceFileSync(file, 'old');
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it('replaces the text of a private file, and leaves no other file', async () => {
    replaceFileSync(file, 'new', { flush: true });
    expect(await readFile(file, 'utf8')).toBe('new');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(await readdir(directory)).toEqual(['settings.json']);
  });

  onLinux('needs no space for a text that is there already', async () => {
    await symlink('/dev/full', `${file}.draft`);
    replaceFileSync(file, 'old');
    expect(await readFile(file, 'utf8')).toBe('old');
  });

  onLinux('keeps the old text and leaves no draft on a full disk', async () => {
    await symlink('/dev/full', `${file}.draft`);
    expect(() => replaceFileSync(file, 'new')).toThrow('ENOSPC');
    expect(await readFile(file, 'utf8')).toBe('old');
    expect(await readdir(directory)).toEqual(['settings.json']);
  });
});
