import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { isUnified, PidsLimit } from './pids-limit.js';

let root: string;
let proc: string;
let limit: PidsLimit;
beforeEach(() => {
  const tempDirectory = mkdtempSync(path.join(tmpdir(), 'cloudless-pids-'));
  [root, proc] = [path.join(tempDirectory, 'cgroup'), path.join(tempDirectory, 'proc')];
  for (const directory of [path.join(root, 'pids'), path.join(proc, '7')])
    mkdirSync(directory, { recursive: true });
  limit = new PidsLimit(root, proc);
});
afterEach(() => rmSync(path.dirname(root), { recursive: true, force: true }));

const info = (cgroupsPath: unknown): Record<string, string> => ({
  info: JSON.stringify({ runtimeSpec: { linux: { cgroupsPath } } }),
});
const group = (name: string, text: string): void => {
  mkdirSync(path.join(root, name), { recursive: true });
  writeFileSync(path.join(root, name, 'pids.max'), text);
};
const read = (name: string): string => readFileSync(path.join(root, name, 'pids.max'), 'utf8');
const running = (groups: string, state = 'S'): void => {
  writeFileSync(path.join(proc, '7', 'cgroup'), groups);
  writeFileSync(
    path.join(proc, '7', 'stat'),
    `7 (a b) ${state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1000 0`,
  );
};

describe('PidsLimit.prepare', () => {
  it('creates the cgroup with the limit, and returns a function that removes the cgroup', async () => {
    group('pids/k8s.io/c1', 'max');
    const undo = await limit.prepare(info('/k8s.io/c1'), 100);
    expect(read('pids/k8s.io/c1')).toBe('100');
    // In the kernel, a group is removed with its files.
    rmSync(path.join(root, 'pids/k8s.io/c1/pids.max'));
    await undo();
    expect(existsSync(path.join(root, 'pids/k8s.io/c1'))).toBe(false);
  });

  it.each(['system.slice:cri-containerd:c1', undefined, '/a/../b', '/', 5])(
    'creates no cgroup for the reported path %s',
    async (reported) => {
      await limit.prepare(info(reported), 100);
      await limit.prepare({}, 100);
      await limit.prepare({ info: '{' }, 100);
      expect(existsSync(path.join(root, 'b'))).toBe(false);
    },
  );

  it('rejects with the directory of the cgroup when the limit cannot be set', async () => {
    await expect(limit.prepare(info('/k8s.io/c1'), 100)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringMatching(
        /^limits\.pids: the limit cannot be set in .*pids\/k8s\.io\/c1: /,
      ),
    });
  });
});

describe('PidsLimit.enforce', () => {
  it.each([
    {
      name: 'cgroup v1',
      groups: '5:cpu,cpuacct:/x\n4:pids:/k8s.io/c1\n0::/y\n',
      at: 'pids/k8s.io/c1',
    },
    { name: 'cgroup v2', groups: '0::/system.slice/c1.scope\n', at: 'system.slice/c1.scope' },
  ])('lowers the limit of the cgroup to the requested limit: $name', async ({ groups, at }) => {
    if (at.startsWith('system')) writeFileSync(path.join(root, 'cgroup.controllers'), 'pids');
    running(groups);
    for (const [before, after] of [
      ['max', '100'],
      ['999', '100'],
      ['99', '99'],
    ] as const) {
      group(at, before);
      expect(await limit.enforce(7, 100)).toBe(true);
      expect(read(at)).toBe(after);
    }
  });

  it('returns false for a process in the root cgroup', async () => {
    running('4:pids:/\n0::/\n');
    expect(await limit.enforce(7, 100)).toBe(false);
  });

  it('returns true for a process that has ended', async () => {
    running('4:pids:/\n', 'Z');
    expect(await limit.enforce(7, 100)).toBe(true);
    expect(await limit.enforce(8, 100)).toBe(true);
  });

  it('rejects with the directory of the cgroup when the limit cannot be set', async () => {
    running('4:pids:/gone\n');
    await expect(limit.enforce(7, 100)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('pids/gone'),
    });
  });
});

describe('isUnified', () => {
  it('returns true only when the mount point lists the controllers of cgroup v2', () => {
    expect(isUnified(root)).toBe(false);
    writeFileSync(path.join(root, 'cgroup.controllers'), 'pids');
    expect(isUnified(root)).toBe(true);
  });
});
