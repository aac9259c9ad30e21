// The packed programs contain the versions of the lock file.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { requireLockedVersions } from '../pack/locked-versions.mjs';

const locked = {
  'node_modules/lmdb': { version: '3.5.6' },
  'node_modules/@lydell/node-pty': { version: '1.1.0' },
  'node_modules/a/node_modules/b': { version: '2.0.0' },
};
const check = (versions, files) =>
  requireLockedVersions(files, { locked, readVersion: (folder) => versions[folder] });
const FILES = [
  'apps/agent/src/main.ts',
  'node_modules/lmdb/index.js',
  'node_modules/lmdb/read.js',
  'node_modules/@lydell/node-pty/index.js',
  'node_modules/a/node_modules/b/index.js',
];
const INSTALLED = {
  'node_modules/lmdb': '3.5.6',
  'node_modules/@lydell/node-pty': '1.1.0',
  'node_modules/a/node_modules/b': '2.0.0',
};

describe('requireLockedVersions', () => {
  it('accepts the versions of the lock file', () => {
    check(INSTALLED, FILES);
  });

  it('refuses another version, and a package without an entry', () => {
    const versions = { ...INSTALLED, 'node_modules/lmdb': '3.5.7', 'node_modules/c': '1.0.0' };
    assert.throws(() => check(versions, [...FILES, 'node_modules/c/index.js']), {
      message:
        'installed packages are not those of package-lock.json: node_modules/c has 1.0.0, not an entry; node_modules/lmdb has 3.5.7, not 3.5.6; run "npm ci"',
    });
  });
});
