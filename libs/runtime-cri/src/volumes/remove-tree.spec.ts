import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { makeDirectoriesBelow } from './make-directories-below.js';
import { findMountsWithin } from './mount-table.js';
import { removeTree } from './remove-tree.js';

let tempDirectory: string;
let tree: string;
beforeEach(() => {
  tempDirectory = mkdtempSync(path.join(tmpdir(), 'cloudless-tree-'));
  tree = path.join(tempDirectory, 'tree');
  mkdirSync(tree);
});
afterEach(() => rmSync(tempDirectory, { recursive: true, force: true }));

describe('removeTree', () => {
  it('removes a directory with all content and follows no symbolic link', async () => {
    const outside = path.join(tempDirectory, 'outside');
    mkdirSync(outside);
    writeFileSync(path.join(outside, 'kept'), '');
    symlinkSync(outside, path.join(tree, 'link'));
    mkdirSync(path.join(tree, 'a/b'), { recursive: true });
    await removeTree(tree);
    expect([existsSync(tree), readdirSync(outside)]).toEqual([false, ['kept']]);
    await removeTree(tree); // a missing directory is not an error
  });

  it('removes only the link when the path is a symbolic link', async () => {
    symlinkSync(tree, path.join(tempDirectory, 'link'));
    await removeTree(path.join(tempDirectory, 'link'));
    expect(readdirSync(tempDirectory)).toEqual(['tree']);
  });

  it('removes a tree with paths that are too long for a system call', async () => {
    const chain = Array.from({ length: 15 }, () => 'd'.repeat(200)).join('/');
    const second = path.join(tempDirectory, 'second');
    mkdirSync(path.join(tree, chain), { recursive: true });
    mkdirSync(path.join(second, chain), { recursive: true });
    renameSync(second, path.join(tree, chain, 'second'));
    await removeTree(tree);
    expect(existsSync(tree)).toBe(false);
  });
});

describe('findMountsWithin', () => {
  const table = [
    '22 1 0:21 / / rw - ext4 /dev/sda rw',
    '23 22 0:22 / /srv/a\\040b rw,relatime shared:5 - tmpfs tmpfs rw',
    '24 22 0:23 / /srvx rw - tmpfs tmpfs rw',
    '',
  ].join('\n');

  it.each([
    { directory: '/', found: ['/', '/srv/a b', '/srvx'] },
    { directory: '/srv', found: ['/srv/a b'] },
    { directory: '/srv/a b', found: ['/srv/a b'] },
    { directory: '/home', found: [] },
  ])('returns $found for $directory', ({ directory, found }) => {
    expect(findMountsWithin(directory, table)).toEqual(found);
  });
});

describe('makeDirectoriesBelow', () => {
  it('creates nested directories and keeps existing directories', async () => {
    mkdirSync(path.join(tree, 'a'));
    await makeDirectoriesBelow(tree, ['a', 'b', 'c']);
    await makeDirectoriesBelow(tree, ['a', 'b', 'c']);
    expect(existsSync(path.join(tree, 'a/b/c'))).toBe(true);
  });

  it.each(['directory', 'file', 'nothing'])(
    'creates nothing behind a symbolic link to a %s',
    async (kind) => {
      const outside = path.join(tempDirectory, 'outside');
      if (kind === 'directory') mkdirSync(outside);
      if (kind === 'file') writeFileSync(outside, '');
      symlinkSync(outside, path.join(tree, 'a'));
      await makeDirectoriesBelow(tree, ['a', 'b']);
      expect(existsSync(path.join(outside, 'b'))).toBe(false);
    },
  );
});
