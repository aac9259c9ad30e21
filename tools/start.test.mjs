import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { root } from './setup.mjs';

describe('npm start in a fresh clone', () => {
  /** Contains the files that npm start may use before it installs packages, and no others. */
  let clone = '';
  before(() => {
    clone = mkdtempSync(join(tmpdir(), 'cloudless-clone-'));
    for (const file of [
      'package.json',
      'tools/start.mjs',
      'tools/setup.mjs',
      'apps/dev-cluster/src/flags.mjs',
    ])
      cpSync(join(root, file), join(clone, file));
  });
  after(() => rmSync(clone, { recursive: true }));

  const start = (...flags) => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [join(clone, 'tools/start.mjs'), ...flags],
      { encoding: 'utf8' },
    );
    return { status, stdout, stderr, files: readdirSync(clone) };
  };
  const files = ['apps', 'package.json', 'tools'];

  for (const flag of ['--help', '-h'])
    it(`prints its help for ${flag} and installs nothing`, () => {
      const { stdout, ...rest } = start(flag);
      assert.deepEqual(rest, { status: 0, stderr: '', files });
      assert.match(stdout, /^Usage: npm start -- \[flags\]\n[^]*--agents <number>/);
    });

  it('prints its version for --version and installs nothing', () => {
    const { stdout, ...rest } = start('--version');
    assert.deepEqual(rest, { status: 0, stderr: '', files });
    assert.match(stdout, /^\d+\.\d+\.\d+\n$/);
  });

  it('rejects a wrong flag with exit code 2 and installs nothing', () => {
    const stderr = 'npm start: unknown flag --prot; see --help for the flags\n';
    assert.deepEqual(start('--prot', '1'), { status: 2, stdout: '', stderr, files });
  });
});
