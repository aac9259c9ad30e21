import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { resolveHostPath } from './host-paths.js';

let home: string;
beforeEach(() => {
  home = realpathSync(mkdtempSync(path.join(tmpdir(), 'cloudless-host-paths-')));
  for (const directory of ['srv/data', 'agent/keys', 'other'])
    mkdirSync(path.join(home, directory), { recursive: true });
  writeFileSync(path.join(home, 'srv/file'), '');
  symlinkSync(path.join(home, 'srv'), path.join(home, 'link'));
  symlinkSync(path.join(home, 'other'), path.join(home, 'srv/out'));
  symlinkSync(path.join(home, 'agent'), path.join(home, 'srv/agent'));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

const resolve = (name: string, allowed: readonly string[], readOnly = false): Promise<string> =>
  resolveHostPath(
    { name: 'v', path: path.join(home, name), readOnly },
    { allowed: allowed.map((each) => path.join(home, each)), guarded: [path.join(home, 'agent')] },
  );

describe('resolveHostPath', () => {
  it.each([
    { asked: 'srv/data', allowed: ['srv'], real: 'srv/data' },
    { asked: 'srv', allowed: ['srv'], real: 'srv' },
    { asked: 'srv/file', allowed: ['other', 'srv'], real: 'srv/file' },
    { asked: 'link/data', allowed: ['srv'], real: 'srv/data' },
    { asked: 'srv/data', allowed: ['link'], real: 'srv/data' },
    { asked: 'srv/out', allowed: ['srv', 'other'], real: 'other' },
  ])('resolves $asked to $real where $allowed is allowed', async ({ asked, allowed, real }) => {
    expect(await resolve(asked, allowed)).toBe(path.join(home, real));
  });

  it.each([
    { asked: 'srv/data', allowed: [], says: 'is not below' },
    { asked: 'srv', allowed: ['srv/data'], says: 'is not below' },
    { asked: 'srv/data', allowed: ['srv/da'], says: 'is not below' },
    { asked: 'srv/out', allowed: ['srv'], says: 'other, which is not below' },
    { asked: 'srv/none', allowed: ['srv'], says: 'does not exist on this node: create it first' },
    { asked: 'agent', allowed: [''], says: 'cannot be mounted in containers' },
    { asked: 'agent/keys', allowed: [''], says: 'cannot be mounted in containers' },
    { asked: '', allowed: [''], says: 'cannot be mounted in containers' },
    {
      asked: 'srv/agent',
      allowed: ['srv', ''],
      says: 'agent, which cannot be mounted in containers',
    },
  ])('refuses $asked where $allowed is allowed: $says', async ({ asked, allowed, says }) => {
    await expect(resolve(asked, allowed)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining(says),
    });
  });

  const ofRuntimes = ['/run', '/run/containerd', '/run/containerd/s', '/run/crio/crio.sock'].filter(
    (place) => existsSync(place),
  );
  it.each(ofRuntimes)(
    'refuses a path that gives root access to the machine, also through a link: %s',
    async (place) => {
      symlinkSync(place, path.join(home, 'srv/way'));
      for (const asked of [place, path.join(home, 'srv/way')]) {
        await expect(
          resolveHostPath(
            { name: 'v', path: asked, readOnly: false },
            { allowed: ['/'], guarded: [] },
          ),
        ).rejects.toMatchObject({
          kind: 'precondition',
          message: expect.stringContaining('cannot be mounted in containers'),
        });
      }
    },
  );

  it('refuses a relative path', async () => {
    await expect(
      resolveHostPath({ name: 'v', path: 'srv', readOnly: false }, { allowed: ['/'], guarded: [] }),
    ).rejects.toMatchObject({
      kind: 'invalid',
      message: 'volumes.v: "srv" must be an absolute path',
    });
  });

  it('refuses a read-only path with another file system mounted below', async () => {
    // contains /sys/fs/cgroup wherever these tests run
    const asked = { name: 'v', path: '/sys', readOnly: true };
    const rules = { allowed: ['/sys'], guarded: [] };
    expect(await resolveHostPath({ ...asked, readOnly: false }, rules)).toBe('/sys');
    await expect(resolveHostPath(asked, rules)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringMatching(
        /^volumes\.v: \/sys cannot be mounted read-only, because \/sys\/\S+ is mounted below it/,
      ),
    });
  });
});
