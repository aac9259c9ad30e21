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

let tempDirectory: string;
beforeEach(() => {
  tempDirectory = realpathSync(mkdtempSync(path.join(tmpdir(), 'cloudless-host-paths-')));
  for (const directory of ['srv/data', 'agent/keys', 'other'])
    mkdirSync(path.join(tempDirectory, directory), { recursive: true });
  writeFileSync(path.join(tempDirectory, 'srv/file'), '');
  symlinkSync(path.join(tempDirectory, 'srv'), path.join(tempDirectory, 'link'));
  symlinkSync(path.join(tempDirectory, 'other'), path.join(tempDirectory, 'srv/out'));
  symlinkSync(path.join(tempDirectory, 'agent'), path.join(tempDirectory, 'srv/agent'));
});
afterEach(() => rmSync(tempDirectory, { recursive: true, force: true }));

const resolve = (name: string, allowed: readonly string[], readOnly = false): Promise<string> =>
  resolveHostPath(
    { name: 'v', path: path.join(tempDirectory, name), readOnly },
    {
      allowed: allowed.map((each) => path.join(tempDirectory, each)),
      guarded: [path.join(tempDirectory, 'agent')],
    },
  );

describe('resolveHostPath', () => {
  it.each([
    { requested: 'srv/data', allowed: ['srv'], real: 'srv/data' },
    { requested: 'srv', allowed: ['srv'], real: 'srv' },
    { requested: 'srv/file', allowed: ['other', 'srv'], real: 'srv/file' },
    { requested: 'link/data', allowed: ['srv'], real: 'srv/data' },
    { requested: 'srv/data', allowed: ['link'], real: 'srv/data' },
    { requested: 'srv/out', allowed: ['srv', 'other'], real: 'other' },
  ])(
    'resolves "$requested" to "$real" when $allowed is allowed',
    async ({ requested, allowed, real }) => {
      expect(await resolve(requested, allowed)).toBe(path.join(tempDirectory, real));
    },
  );

  it.each([
    { requested: 'srv/data', allowed: [], expectedText: 'is not below' },
    { requested: 'srv', allowed: ['srv/data'], expectedText: 'is not below' },
    { requested: 'srv/data', allowed: ['srv/da'], expectedText: 'is not below' },
    { requested: 'srv/out', allowed: ['srv'], expectedText: 'other, which is not below' },
    {
      requested: 'srv/none',
      allowed: ['srv'],
      expectedText: 'does not exist on this node: create it first',
    },
    { requested: 'agent', allowed: [''], expectedText: 'cannot be mounted in containers' },
    { requested: 'agent/keys', allowed: [''], expectedText: 'cannot be mounted in containers' },
    { requested: '', allowed: [''], expectedText: 'cannot be mounted in containers' },
    {
      requested: 'srv/agent',
      allowed: ['srv', ''],
      expectedText: 'agent, which cannot be mounted in containers',
    },
  ])(
    'refuses "$requested" when $allowed is allowed: $expectedText',
    async ({ requested, allowed, expectedText }) => {
      await expect(resolve(requested, allowed)).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringContaining(expectedText),
      });
    },
  );

  const runtimePaths = [
    '/run',
    '/run/containerd',
    '/run/containerd/s',
    '/run/crio/crio.sock',
  ].filter((runtimePath) => existsSync(runtimePath));
  it.each(runtimePaths)(
    'refuses the path %s of a container runtime, also through a link, when all paths are allowed',
    async (runtimePath) => {
      const link = path.join(tempDirectory, 'srv/link');
      symlinkSync(runtimePath, link);
      for (const requested of [runtimePath, link]) {
        await expect(
          resolveHostPath(
            { name: 'v', path: requested, readOnly: false },
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

  it('refuses a read-only path when another file system is mounted below', async () => {
    // /sys contains the mount /sys/fs/cgroup wherever these tests run.
    const request = { name: 'v', path: '/sys', readOnly: true };
    const rules = { allowed: ['/sys'], guarded: [] };
    expect(await resolveHostPath({ ...request, readOnly: false }, rules)).toBe('/sys');
    await expect(resolveHostPath(request, rules)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringMatching(
        /^volumes\.v: \/sys cannot be mounted read-only, because \/sys\/\S+ is mounted below it/,
      ),
    });
  });
});
