import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { ManualClock } from '@cloudless/base/testing';
import { checkUlimits, confirmUlimits, setSandboxUlimits } from './ulimits.js';

/**
 * A process id that no process of this machine can have.
 * @see proc_sys_kernel(5), pid_max
 */
const PID = 2 ** 30;
const LIMITS = `Limit                     Soft Limit           Hard Limit           Units
Max core file size        0                    unlimited            bytes
Max open files            4096                 4096                 files
`;

let proc: string;
beforeAll(() => {
  proc = mkdtempSync(path.join(tmpdir(), 'cloudless-limits-'));
  mkdirSync(path.join(proc, String(PID)));
  writeFileSync(path.join(proc, String(PID), 'limits'), LIMITS);
});
afterAll(() => rmSync(proc, { recursive: true, force: true }));

describe('checkUlimits', () => {
  it.each([
    { soft: 4096, hard: 4096 },
    { soft: 256, hard: -1 },
    { soft: -1, hard: -1 },
  ])('accepts the soft limit $soft with the hard limit $hard of open files', ({ soft, hard }) => {
    checkUlimits({ ulimits: [{ name: 'nofile', soft, hard }] });
  });
});

describe('confirmUlimits', () => {
  const confirm = (name: string, soft: number, hard: number, pid = PID): Promise<void> =>
    confirmUlimits(pid, [{ name, soft, hard }], new ManualClock(), proc);

  it.each([
    { name: 'core', soft: 0, hard: -1 },
    { name: 'nofile', soft: 4096, hard: 4096 },
  ])(
    'resolves when the limit $name of the process is as requested',
    async ({ name, soft, hard }) => {
      await confirm(name, soft, hard);
    },
  );

  it('rejects when the process has another limit than requested', async () => {
    await expect(confirm('nofile', 1024, 4096)).rejects.toMatchObject({
      kind: 'precondition',
      message:
        'ulimits.nofile: the container runtime set 4096:4096 instead of 1024:4096; request 4096:4096, or omit the limit',
    });
  });

  it('resolves when the process has ended', async () => {
    await confirm('nofile', 1024, 4096, PID + 1);
  });
});

describe('setSandboxUlimits', () => {
  it.each([undefined, process.pid])(
    'rejects when the parent of the sandbox process %p is no shim of containerd',
    async (pid) => {
      await expect(setSandboxUlimits(pid, [])).rejects.toMatchObject({ kind: 'unimplemented' });
    },
  );
});
