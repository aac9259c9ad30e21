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
/**
 * Bit numbers of the capabilities that these tests check.
 * @see Linux kernel, include/uapi/linux/capability.h
 */
const BITS = { CHOWN: 0, KILL: 5, NET_RAW: 13, SYS_ADMIN: 21, MKNOD: 27, AUDIT_WRITE: 29 } as const;

let machine: RealCriMachine;
let tempDirectory: string;

/** Starts a container and reads the privileges of its main process. */
async function readPrivileges(
  security?: SecurityRequest,
  overrides: Partial<ContainerRequest> = {},
): Promise<Privileges> {
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

interface Privileges {
  /** Those of the checked capabilities that are in the effective set. */
  readonly effective: readonly string[];
  /** Those of the checked capabilities that are in the bounding set. */
  readonly bounding: readonly string[];
  /** Bits of the whole bounding set. */
  readonly all: bigint;
  /** Numbers of user and group, such as `0:0`. */
  readonly user: string;
  readonly noNewPrivileges: boolean;
  /**
   * `0` for off, `2` for a filter.
   * @see proc_pid_status(5)
   */
  readonly seccomp: string;
  /** Runs a shell script in the container and returns its output. */
  readonly sh: (script: string) => Promise<string>;
}

const startWith = (security: SecurityRequest): Promise<unknown> =>
  startIdle(machine.runtime, { security });

describeReal(
  `privileges of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      tempDirectory = mkdtempSync(path.join(tmpdir(), 'cloudless-security-'));
      machine = await openRealCriMachine({ allowPrivileged: true });
    });
    afterAll(async () => {
      await machine.dispose();
      rmSync(tempDirectory, { recursive: true, force: true });
    });

    it('exclude new privileges and three default capabilities, and include seccomp, by default', async () => {
      const { effective, bounding, noNewPrivileges, seccomp, user, sh } = await readPrivileges();
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
      // Both seccomp and the missing SYS_ADMIN refuse this call.
      expect(await sh('unshare -m true 2>&1 || echo refused')).toMatch(/refused/);
      expect(await sh('chown 5:5 /tmp && echo done')).toBe('done');
      expect(await sh('echo x > /root-is-writable && echo done')).toBe('done');
    });

    it('follow the added and dropped capabilities of the request, also ALL', async () => {
      expect((await readPrivileges({ capabilitiesDrop: ['CHOWN'] })).effective).toEqual(['KILL']);
      const added = await readPrivileges({ capabilitiesAdd: ['NET_RAW', 'MKNOD'] });
      expect(added.effective).toEqual(['CHOWN', 'KILL', 'NET_RAW', 'MKNOD']);
      expect(await added.sh('mknod /tmp/null c 1 3 && echo made')).toBe('made');
      const none = await readPrivileges({ capabilitiesDrop: ['ALL'], capabilitiesAdd: ['KILL'] });
      expect([none.effective, none.all]).toEqual([['KILL'], 1n << BigInt(BITS.KILL)]);
      expect(await none.sh('chown 5:5 /tmp || echo refused')).toMatch(/refused/);
      expect((await readPrivileges({ capabilitiesDrop: ['ALL'] })).all).toBe(0n);
      expect((await readPrivileges({ capabilitiesAdd: ['ALL'] })).bounding).toEqual(
        Object.keys(BITS),
      );
    });

    it('are those of the requested user and group, which have no effective capabilities', async () => {
      const { user, effective, sh } = await readPrivileges({
        runAsUser: 1234,
        runAsGroup: 4321,
        runAsNonRoot: true,
      });
      expect([user, effective]).toEqual(['1234:4321', []]);
      expect(await sh('id -u; id -g')).toBe('1234\n4321');
      expect(await sh('echo x > /root-is-writable || echo refused')).toMatch(/refused/);
    });

    it('are not granted when runAsNonRoot is set and the image runs as root', async () => {
      await expect(startWith({ runAsNonRoot: true })).rejects.toMatchObject({
        kind: 'invalid',
        message: expect.stringMatching(
          /^security\.runAsNonRoot: image \S+ runs as root: set runAsUser/,
        ),
      });
    });

    it('allow writes only to volumes when the root file system is read-only', async () => {
      const volumes = [
        { name: 'data', mountPath: '/data', readOnly: false, source: { kind: 'emptyDir' } },
      ] as const;
      const { sh } = await readPrivileges({ readOnlyRootFilesystem: true }, { volumes });
      for (const place of ['/x', '/etc/hosts', '/tmp/x', '/etc/resolv.conf']) {
        expect(await sh(`echo x > ${place} || echo refused`)).toMatch(
          /Read-only file system[\s\S]*refused/,
        );
      }
      expect(await sh('echo x > /data/x && cat /data/x')).toBe('x');
    });

    it('follow the seccomp profile of the request: none, or a file of this machine that exists', async () => {
      expect((await readPrivileges({ seccomp: { kind: 'unconfined' } })).seccomp).toBe('0');
      const profile = path.join(tempDirectory, 'no-mkdir.json');
      const syscalls = [{ names: ['mkdir', 'mkdirat'], action: 'SCMP_ACT_ERRNO' }];
      writeFileSync(profile, JSON.stringify({ defaultAction: 'SCMP_ACT_ALLOW', syscalls }));
      const { seccomp, sh } = await readPrivileges({
        seccomp: { kind: 'localhost', reference: profile },
      });
      expect(seccomp).toBe('2');
      expect(await sh('mkdir /tmp/a || echo refused; echo x > /tmp/b && echo written')).toMatch(
        /refused\nwritten$/,
      );
      const missing = path.join(tempDirectory, 'missing.json');
      await expect(
        startWith({ seccomp: { kind: 'localhost', reference: missing } }),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: `security.seccomp: the profile ${missing} does not exist on this node`,
      });
    });

    it('include new privileges when the request sets noNewPrivileges to false', async () => {
      expect((await readPrivileges({ noNewPrivileges: false })).noNewPrivileges).toBe(false);
    });

    it('are all those of the machine for a privileged container that the operator allows', async () => {
      const { bounding, seccomp, sh } = await readPrivileges({ privileged: true });
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

    it('are not granted to a privileged container when the operator does not allow it', async () => {
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

    it('are granted with a runtime class that the runtime has, and not with another class', async () => {
      expect((await readPrivileges({ runtimeClass: 'runc' })).seccomp).toBe('2');
      await expect(startWith({ runtimeClass: 'gvisor' })).rejects.toMatchObject({
        kind: 'unimplemented',
        message: 'security.runtimeClass: this node lacks the capability runtime-class.gvisor',
      });
    });

    it('are not granted when the request needs AppArmor or SELinux and the kernel lacks it', async () => {
      const { runtime } = machine;
      const selinux = { user: '', role: '', type: 'container_t', level: '' };
      const requests = {
        'security.apparmor': { apparmor: { kind: 'runtimeDefault' } },
        'security.selinux': { selinux },
      } as const;
      for (const [capability, security] of Object.entries(requests)) {
        if (runtime.capabilities().includes(capability)) continue;
        await expect(startWith(security)).rejects.toMatchObject({
          kind: 'unimplemented',
          message: expect.stringContaining(capability),
        });
      }
    });
  },
);
