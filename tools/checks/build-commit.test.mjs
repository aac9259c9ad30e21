// The version that a bundle shows contains the commit of its sources.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { build } from 'esbuild';
import { cliBundle, coordinatorBundle, readCommit } from '../build.mjs';

let folder;
before(() => (folder = mkdtempSync(join(tmpdir(), 'commit-'))));
after(() => rmSync(folder, { recursive: true, force: true }));

/** Runs git in the folder. The settings of the user have no effect. */
function git(...words) {
  const settings = ['-c', 'user.name=a', '-c', 'user.email=a@example.org'];
  const env = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null' };
  return execFileSync('git', [...settings, ...words], { cwd: folder, env, encoding: 'utf8' });
}

/** @returns what a bundle of the file with the version exports */
async function bundleVersion(define) {
  const { outputFiles } = await build({
    absWorkingDir: cliBundle.absWorkingDir,
    define,
    bundle: true,
    format: 'esm',
    write: false,
    entryPoints: ['libs/app-kit/src/version.ts'],
  });
  const url = `data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString('base64')}`;
  return import(url);
}

describe('commit of a build', () => {
  it('is absent outside a clone, and in a folder inside a clone', () => {
    assert.equal(readCommit(folder), undefined);
    git('init', '--quiet');
    mkdirSync(join(folder, 'vendored'));
    writeFileSync(join(folder, 'a'), '1');
    git('add', '.');
    git('commit', '--quiet', '--message', 'first');
    assert.equal(readCommit(join(folder, 'vendored')), undefined);
  });

  it('has 12 digits, and says when files were changed', () => {
    git('tag', '--annotate', 'v9', '--message', 'no part of the commit');
    const commit = git('rev-parse', 'HEAD').slice(0, 12);
    assert.equal(readCommit(folder), commit);
    writeFileSync(join(folder, 'a'), '2');
    assert.equal(readCommit(folder), `${commit}-dirty`);
  });

  it('is a part of the version in a bundle, and absent from a bundle without a commit', async () => {
    const define = { CLOUDLESS_COMMIT: '"0123456789ab"' };
    const { VERSION, ...built } = await bundleVersion(define);
    assert.deepEqual(built, { COMMIT: '0123456789ab', BUILD: `${VERSION}+0123456789ab` });
    const { COMMIT, BUILD } = await bundleVersion({});
    assert.deepEqual({ COMMIT, BUILD }, { COMMIT: undefined, BUILD: VERSION });
  });

  it('is given to the bundles', () => {
    const commit = readCommit(cliBundle.absWorkingDir);
    const expected = commit === undefined ? undefined : JSON.stringify(commit);
    for (const { define } of [cliBundle, coordinatorBundle])
      assert.equal(define.CLOUDLESS_COMMIT, expected);
  });
});
