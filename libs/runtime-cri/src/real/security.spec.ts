import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { definedFields } from '@cloudless/base';
import type { ContainerRequest, SecurityRequest } from '@cloudless/runtime';
import { execIn, startIdle, readProcessStatus } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;
/** Numbers of the capabilities that these tests are about: include/uapi/linux/capability.h */
const BITS = { CHOWN: 0, KILL: 5, NET_RAW: 13, SYS_ADMIN: 21, MKNOD: 27, AUDIT_WRITE: 29 } as const;

let machine: RealCriMachine;
let home: string;

/** Reads the effective privileges inside a container. */
async function inside(
  security?: SecurityRequest,
  overrides: Partial<ContainerRequest> = {},
): Promise<Inside> {
  const started = await startIdle(machine.runtime, {
    ...definedFields({ security }),
    ...overrides,
  });
  const { containerId } = started;
  const fields = await readProcessStatus(started);
  const mask = (name: string): bigint => BigInt(`0x${fields.get(name) ?? '0'}`);
  const has = (field: string): readonly string[] =>
    Object.entries(BITS).flatMap(([name, bit]) =>
      (mask(field) >> BigInt(bit)) & 1n ? [name] : [],
    );
  const first = (name: string): string => fields.get(name)?.split('\t')[0] ?? '';
  return {
    effective: has('CapEff'),
    bounding: has('CapBnd'),
    all: mask('CapBnd'),
    user: `${first('Uid')}:${first('Gid')}`,
    noNewPrivileges: first('NoNewPrivs') === '1',
    seccomp: first('Seccomp'),
    sh: async (script) => (await execIn(machine.runtime, containerId, script)).text.trim(),
  };
}

interface Inside {
  readonly effective: readonly string[];
  readonly bounding: readonly string[];
  readonly all: bigint;
  readonly user: string;
  readonly noNewPrivileges: boolean;
  /** 0 off, 2 filter. @see proc_pid_status(5) */
  readonly seccomp: string;
  readonly sh: (script: string) => Promise<string>;
}

const refused = (security: SecurityRequest): Promise<unknown> =>
  startIdle(machine.runtime, { security });

describeReal(
  `privileges seen from inside a container${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      home = mkdtempSync(path.join(tmpdir(), 'cloudless-security-'));
      machine = await openRealCriMachine({ allowPrivileged: true });
    });
    afterAll(async () => {
      await machine.dispose();
      rmSync(home, { recursive: true, force: true });
    });

    it('by default: no new privileges, seccomp, and without three default capabilities', async () => {
      const { effective, bounding, noNewPrivileges, seccomp, user, sh } = await inside();
      expect({ effective, bounding, noNewPrivileges, seccomp, user }).toEqual({
        effective: ['CHOWN', 'KILL'],
        bounding: ['CHOWN', 'KILL'],
        noNewPrivileges: true,
        seccomp: '2',
        user: '0:0',
      });
      expect(await sh('mknod /tmp/disk b 8 0 || echo refused')).toMatch(
        /not permitted[\s\S]*refused/,
      );
      expect(await sh('ping -c 1 -W 1 127.0.0.1 || echo refused')).toMatch(
        /(not permitted|permission denied)[\s\S]*refused/i,
      );
      // seccomp and no SYS_ADMIN
      expect(await sh('unshare -m true 2>&1 || echo refused')).toMatch(/refused/);
      expect(await sh('chown 5:5 /tmp && echo done')).toBe('done');
      expect(await sh('echo x > /root-is-writable && echo done')).toBe('done');
    });

    it('capabilities: dropped, added, all but one dropped, all added', async () => {
      expect((await inside({ capabilitiesDrop: ['CHOWN'] })).effective).toEqual(['KILL']);
      const added = await inside({ capabilitiesAdd: ['NET_RAW', 'MKNOD'] });
      expect(added.effective).toEqual(['CHOWN', 'KILL', 'NET_RAW', 'MKNOD']);
      expect(await added.sh('mknod /tmp/null c 1 3 && echo made')).toBe('made');
      const none = await inside({ capabilitiesDrop: ['ALL'], capabilitiesAdd: ['KILL'] });
      expect([none.effective, none.all]).toEqual([['KILL'], 1n << BigInt(BITS.KILL)]);
      expect(await none.sh('chown 5:5 /tmp || echo refused')).toMatch(/refused/);
      expect((await inside({ capabilitiesDrop: ['ALL'] })).all).toBe(0n);
      expect((await inside({ capabilitiesAdd: ['ALL'] })).bounding).toEqual(Object.keys(BITS));
    });

    it('user and group: numbers replace those of the image, without capabilities', async () => {
      const { user, effective, sh } = await inside({
        runAsUser: 1234,
        runAsGroup: 4321,
        runAsNonRoot: true,
      });
      expect([user, effective]).toEqual(['1234:4321', []]);
      expect(await sh('id -u; id -g')).toBe('1234\n4321');
      expect(await sh('echo x > /root-is-writable || echo refused')).toMatch(/refused/);
    });

    it('runAsNonRoot: refuses an image that runs as root', async () => {
      await expect(refused({ runAsNonRoot: true })).rejects.toMatchObject({
        kind: 'invalid',
        message: expect.stringMatching(
          /^security\.runAsNonRoot: image \S+ runs as root: set runAsUser/,
        ),
      });
    });

    it('read-only root file system: only volumes are writable', async () => {
      const volumes = [
        { name: 'data', mountPath: '/data', readOnly: false, source: { kind: 'emptyDir' } },
      ] as const;
      const { sh } = await inside({ readOnlyRootFilesystem: true }, { volumes });
      for (const place of ['/x', '/etc/hosts', '/tmp/x', '/etc/resolv.conf']) {
        expect(await sh(`echo x > ${place} || echo refused`)).toMatch(
          /Read-only file system[\s\S]*refused/,
        );
      }
      expect(await sh('echo x > /data/x && cat /data/x')).toBe('x');
    });

    it('seccomp: none, or a profile of this machine', async () => {
      expect((await inside({ seccomp: { kind: 'unconfined' } })).seccomp).toBe('0');
      const profile = path.join(home, 'no-mkdir.json');
      const syscalls = [{ names: ['mkdir', 'mkdirat'], action: 'SCMP_ACT_ERRNO' }];
      writeFileSync(profile, JSON.stringify({ defaultAction: 'SCMP_ACT_ALLOW', syscalls }));
      const { seccomp, sh } = await inside({ seccomp: { kind: 'localhost', reference: profile } });
      expect(seccomp).toBe('2');
      expect(await sh('mkdir /tmp/a || echo refused; echo x > /tmp/b && echo written')).toMatch(
        /refused\nwritten$/,
      );
      const missing = path.join(home, 'missing.json');
      await expect(
        refused({ seccomp: { kind: 'localhost', reference: missing } }),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: `security.seccomp: the profile ${missing} does not exist on this node`,
      });
    });

    it('noNewPrivileges: can be disabled', async () => {
      expect((await inside({ noNewPrivileges: false })).noNewPrivileges).toBe(false);
    });

    it('privileged: full access to the machine when the operator allows it', async () => {
      const { bounding, seccomp, sh } = await inside({ privileged: true });
      expect([bounding, seccomp]).toEqual([Object.keys(BITS), '0']);
      expect(await sh('mkdir /tmp/m && mount -t tmpfs none /tmp/m && echo mounted')).toBe(
        'mounted',
      );
      expect(
        await sh(
          '[ -w /proc/sys/kernel/hostname ] && grep " /proc/sys " /proc/self/mounts || echo open',
        ),
      ).toBe('open');
    });

    it('privileged: refused without a trace when the operator does not allow it', async () => {
      const strict = await openRealCriMachine();
      await expect(
        startIdle(strict.runtime, { security: { privileged: true } }),
      ).rejects.toMatchObject({
        kind: 'unimplemented',
        message: expect.stringContaining('--allow-privileged'),
      });
      expect(await strict.runtime.list()).toEqual([]);
      await strict.dispose();
    });

    it('runtime class: accepted when the runtime has it, else refused', async () => {
      expect((await inside({ runtimeClass: 'runc' })).seccomp).toBe('2');
      await expect(refused({ runtimeClass: 'gvisor' })).rejects.toMatchObject({
        kind: 'unimplemented',
        message: 'security.runtimeClass: this node lacks the capability runtime-class.gvisor',
      });
    });

    it('features that this kernel lacks are refused instead of ignored', async () => {
      const { runtime } = machine;
      const selinux = { user: '', role: '', type: 'container_t', level: '' };
      const asked = {
        'security.apparmor': { apparmor: { kind: 'runtimeDefault' } },
        'security.selinux': { selinux },
      } as const;
      for (const [capability, security] of Object.entries(asked)) {
        if (runtime.capabilities().includes(capability)) continue;
        await expect(refused(security)).rejects.toMatchObject({
          kind: 'unimplemented',
          message: expect.stringContaining(capability),
        });
      }
    });
  },
);
