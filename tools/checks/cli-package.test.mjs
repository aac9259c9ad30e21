// The packed cloudlessctl works outside of the checkout, installed by npm and as a single file.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { build } from 'esbuild';
import { packCli } from '../pack-cli.mjs';
import { root } from '../setup.mjs';

const folder = mkdtempSync(join(tmpdir(), 'cloudless package '));
after(() => rmSync(folder, { recursive: true, force: true }));

let packed;
let installed;
before(async () => {
  await writeBackup(join(folder, 'today.backup'));
  packed = await packCli(folder);
  const prefix = join(folder, 'prefix');
  // The archive contains all that it needs: npm asks no registry.
  const npm = ['install', '--global', '--prefix', prefix, '--ignore-scripts'];
  execFileSync('npm', [...npm, '--offline', '--no-audit', '--no-fund', packed.archive], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  installed = join(prefix, 'bin', 'cloudlessctl');
});

/** Writes a backup of an empty store. */
async function writeBackup(file) {
  const { outputFiles } = await build({
    stdin: {
      contents: `export { createMemoryStateStore, exportSnapshot } from '@cloudless/state-store';
        export { systemClock } from '@cloudless/app-kit';`,
      resolveDir: join(root, 'apps/cloudlessctl'),
    },
    bundle: true,
    write: false,
    platform: 'node',
    format: 'esm',
    conditions: ['@cloudless/source'],
  });
  const bundle = join(folder, 'state-store.mjs');
  writeFileSync(bundle, outputFiles[0].text);
  const { createMemoryStateStore, exportSnapshot, systemClock } = await import(bundle);
  const store = createMemoryStateStore({ clock: systemClock });
  const chunks = [];
  for await (const chunk of exportSnapshot(store, { clusterId: 'cluster-1', schemaVersion: 1 }))
    chunks.push(chunk);
  writeFileSync(file, Buffer.concat(chunks));
}

/** Runs a program in the temporary folder. */
function run(program, args, more = {}) {
  const env = { PATH: process.env.PATH, HOME: folder, ...more };
  const { status, stdout, stderr } = spawnSync(program, args, {
    cwd: folder,
    env,
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

for (const { name, program } of [
  { name: 'installed package', program: () => installed },
  { name: 'single file', program: () => packed.file },
]) {
  describe(`${name} of cloudlessctl`, () => {
    it('prints its version', () => {
      const { status, stdout, stderr } = run(program(), ['version', '--client']);
      assert.deepEqual({ status, stderr }, { status: 0, stderr: '' });
      assert.match(stdout, /^cloudlessctl \d+\.\d+\.\d+(?:\+[0-9a-f]{12,}(?:-dirty)?)?\n$/);
    });

    it('writes and edits the contexts of the configuration file', () => {
      for (const args of [
        ['context', 'set', 'try', '--server', 'http://127.0.0.1:28080'],
        ['context', 'set', 'other', '--server', 'http://127.0.0.1:28081'],
        ['context', 'use', 'try'],
      ]) {
        const { status, stderr } = run(program(), args);
        assert.deepEqual({ status, stderr }, { status: 0, stderr: '' }, args.join(' '));
      }
      assert.match(run(program(), ['context', 'list']).stdout, /try +http:\/\/127\.0\.0\.1:28080/);
    });

    it('prints completion scripts, and completes', () => {
      const { stdout } = run(program(), ['completion', 'bash']);
      assert.match(stdout, /^_cloudlessctl\(\) \{$/m);
      assert.equal(
        run(program(), ['__complete', '--', 'node', 'drai']).stdout.split('\t')[0],
        'drain',
      );
    });

    it('passes options that Node.js has too to the command', () => {
      const args = ['workload', 'create', 'web', '--env-file', 'missing.env'];
      const { status, stderr } = run(program(), args);
      assert.equal(status, 2);
      assert.match(stderr, /^cloudlessctl: nothing to run/);
    });

    it('loads the client of the API with the first call', () => {
      const { status, stderr } = run(program(), ['get', 'nodes', '--server', 'http://127.0.0.1:1']);
      assert.equal(status, 5);
      assert.match(
        stderr,
        /^cloudlessctl: cannot reach the coordinator at http:\/\/127\.0\.0\.1:1/,
      );
    });

    it('verifies a backup', () => {
      assert.equal(run(program(), ['admin', 'verify', 'today.backup']).status, 0);
    });
  });
}

describe('admin restore', () => {
  const restore = (directory) => ['admin', 'restore', 'today.backup', '--data-dir', directory];

  it('works from the installed package', () => {
    const { status, stdout, stderr } = run(installed, restore('data'));
    assert.deepEqual({ status, stderr }, { status: 0, stderr: '' });
    assert.match(stdout, /^data: restored revision /);
  });

  it('names the missing package when the single file runs it', () => {
    const { status, stderr } = run(packed.file, restore('from-file'));
    assert.equal(status, 1);
    assert.match(stderr, /^cloudlessctl: this command needs the package lmdb, which is not/);
  });

  it('names the machine when the package has no binary for its processor', () => {
    // lmdb chooses the binary of this processor when npm_config_arch is set
    const { status, stderr } = run(installed, restore('other'), { npm_config_arch: 'mips' });
    assert.equal(status, 1);
    assert.match(
      stderr,
      /this cloudlessctl was packed without its binary for \w+-\w+; run the command on/,
    );
  });
});
