import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { ContainerRequest, ContainerStatus, VolumeRequest } from '@cloudless/runtime';
import { openCriRuntime } from '../index.js';
import { execIn, aScriptRequest, startIdle } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  removeAll,
  SOCKET,
  waitUntil,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';
import { mountMemory, unmountMemory } from '../volumes/memory-mounts.js';
import { findMountsWithin } from '../volumes/mount-table.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;

let machine: RealCriMachine;
/** Directory of the machine that the operator allows containers to mount. */
let allowed: string;
/** Directory in which the runtime creates volumes. */
let volumeDirectory: string;

const emptyDir = (name: string, mountPath: string, readOnly = false): VolumeRequest => ({
  ...{ name, mountPath, readOnly, source: { kind: 'emptyDir' } },
});
const named = (workload: string, overrides: Partial<VolumeRequest> = {}): VolumeRequest => ({
  ...{ name: 'data', mountPath: '/data', readOnly: false },
  source: { kind: 'named', namespace: 'default', workload, name: 'db' },
  ...overrides,
});
const hostPath = (from: string, readOnly = false): VolumeRequest => ({
  ...{ name: 'host', mountPath: '/host', readOnly, source: { kind: 'hostPath', path: from } },
});
const start = (group: string, ...volumes: readonly VolumeRequest[]): Promise<ContainerStatus> =>
  startIdle(machine.runtime, { group, volumes });
/** Returns an empty directory in memory. */
const memory = (name: string, mountPath: string, sizeBytes?: number): VolumeRequest => ({
  ...{ name, mountPath, readOnly: false },
  source: { kind: 'emptyDir', memory: sizeBytes === undefined ? {} : { sizeBytes } },
});
/** Lists the tmpfs mounts that the runtime has made for containers. */
const listMemoryMounts = (): readonly string[] => findMountsWithin(volumeDirectory);
const runScript = async ({ containerId }: ContainerStatus, script: string): Promise<string> =>
  (await execIn(machine.runtime, containerId, script)).text.trim();
/** Lists the groups that have empty directories. */
const listGroups = (): readonly string[] => {
  const directory = path.join(volumeDirectory, 'empty');
  return existsSync(directory) ? readdirSync(directory) : [];
};

async function stopAndRemove({ containerId }: ContainerStatus): Promise<void> {
  await machine.runtime.stop(containerId, 0);
  await machine.runtime.remove(containerId);
}

describeReal(
  `volumes of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeEach(async () => {
      allowed = mkdtempSync(path.join(tmpdir(), 'cloudless-allowed-'));
      machine = await openRealCriMachine({ allowedHostPaths: [allowed] });
      volumeDirectory = path.join(path.dirname(machine.options.logDirectory), 'volumes');
    });
    afterEach(async () => {
      await machine.dispose();
      rmSync(allowed, { recursive: true, force: true });
    });

    it('include an empty directory that its group shares until the last container is removed', async () => {
      const first = await start('replica-1', emptyDir('scratch', '/scratch'));
      expect(await runScript(first, 'stat -c %a /scratch; ls /scratch')).toBe('777');
      await runScript(first, 'echo kept > /scratch/a');
      await machine.runtime.stop(first.containerId, 0);
      const second = await start('replica-1', emptyDir('scratch', '/scratch'));
      await machine.runtime.remove(first.containerId);
      expect(await runScript(second, 'cat /scratch/a')).toBe('kept');
      const other = await start('replica-2', emptyDir('scratch', '/scratch'));
      expect(await runScript(other, 'ls /scratch')).toBe('');
      expect(listGroups()).toEqual(['replica-1', 'replica-2']);
      await stopAndRemove(second);
      expect(listGroups()).toEqual(['replica-2']);
      await stopAndRemove(other);
      expect(listGroups()).toEqual([]);
    });

    it('include an empty directory in memory with a size limit, which is removed with its group', async () => {
      const volume = memory('cache', '/cache', 1024 * 1024);
      const first = await start('memory-1', volume);
      expect(
        await runScript(
          first,
          'stat -f -c %T /cache; stat -c %a /cache; df -k /cache | tail -n 1 | tr -s " " | cut -d " " -f 2',
        ),
      ).toBe('tmpfs\n777\n1024');
      expect(
        await runScript(first, 'head -c 2000000 /dev/zero > /cache/much || stat -c %s /cache/much'),
      ).toMatch(/\n1048576$/);
      expect(
        await runScript(first, 'rm /cache/much; echo kept > /cache/note; mount | grep " /cache "'),
      ).toMatch(/nosuid.*nodev|nodev.*nosuid/);
      await machine.runtime.stop(first.containerId, 0);
      const second = await start('memory-1', volume);
      await machine.runtime.remove(first.containerId);
      expect(await runScript(second, 'cat /cache/note')).toBe('kept');
      expect(listMemoryMounts()).toHaveLength(1);
      await stopAndRemove(second);
      expect([listMemoryMounts(), listGroups()]).toEqual([[], []]);
    });

    it('include /dev/shm with the requested size, which is empty for each container', async () => {
      const request = { group: 'shm-1', shmSizeBytes: 200 * 1024 * 1024 };
      const size =
        'df -k /dev/shm | tail -n 1 | tr -s " " | cut -d " " -f 2; stat -c %a /dev/shm; ls /dev/shm';
      const first = await startIdle(machine.runtime, request);
      expect(await runScript(first, `${size}; echo x > /dev/shm/x`)).toBe('204800\n1777');
      await machine.runtime.stop(first.containerId, 0);
      const second = await startIdle(machine.runtime, request);
      expect(await runScript(second, size)).toBe('204800\n1777');
      await machine.runtime.remove(first.containerId);
      expect(listMemoryMounts()).toHaveLength(1);
      await stopAndRemove(second);
      expect([listMemoryMounts(), listGroups()]).toEqual([[], []]);
      expect(await runScript(await startIdle(machine.runtime), size)).toBe('65536\n1777');
    });

    it('include a prepared directory, read-only, whose changes the container sees at once', async () => {
      const directory = path.join(allowed, 'identities', 'web-1');
      const sibling = path.join(allowed, 'identities', 'web-2');
      for (const each of [directory, sibling]) {
        mkdirSync(each, { recursive: true });
        await mountMemory('test', each, { mode: 0o755, sizeBytes: 1 << 20, noSwap: true });
        mkdirSync(path.join(each, 'v1'));
        writeFileSync(path.join(each, 'v1', 'key'), `first key of ${path.basename(each)}`);
        symlinkSync('v1', path.join(each, '..data'));
      }
      const source = { kind: 'prepared', path: directory, inMemory: true } as const;
      const mountPath = '/var/run/cloudless/identity';
      const container = await start(
        'web-1',
        { name: 'identity', mountPath, readOnly: true, source },
        emptyDir('run', '/var/run'),
      );
      expect(await runScript(container, `cat ${mountPath}/..data/key`)).toBe('first key of web-1');
      mkdirSync(path.join(directory, 'v2'));
      writeFileSync(path.join(directory, 'v2', 'key'), 'second key');
      symlinkSync('v2', path.join(directory, '..draft'));
      renameSync(path.join(directory, '..draft'), path.join(directory, '..data'));
      expect(
        await runScript(
          container,
          `cat ${mountPath}/..data/key; touch ${mountPath}/x; ls ${mountPath}/..; grep -r "key of web-2" /var /run /tmp`,
        ),
      ).toMatch(/^second keytouch: .*Read-only file system\nidentity$/);
      await stopAndRemove(container);
      for (const each of [directory, sibling]) await unmountMemory(each);
    });

    it('refuse a prepared directory in memory that the container runtime does not see', async () => {
      const source = { kind: 'prepared', path: allowed, inMemory: true } as const;
      const volume = { name: 'identity', mountPath: '/identity', readOnly: true, source };
      await expect(start('web-1', volume)).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringContaining('/identity is not in memory') as unknown,
      });
    });

    it('in memory are removed after a failed start, and by the sweep for an unknown group', async () => {
      const failing = aScriptRequest('', {
        command: ['/no-such-program'],
        group: 'memory-2',
        volumes: [memory('a', '/a')],
        shmSizeBytes: 4096,
      });
      await expect(machine.runtime.start(failing)).rejects.toMatchObject({ kind: 'invalid' });
      expect([listMemoryMounts(), listGroups()]).toEqual([[], []]);
      const running = await start('memory-3', memory('a', '/a'));
      await machine.runtime.close();
      await removeAll(
        await openCriRuntime({
          ...machine.options,
          volumeDirectory: path.join(allowed, 'elsewhere'),
        }),
      );
      expect(listMemoryMounts()).toHaveLength(1);
      const later = await openCriRuntime({ ...machine.options, orphanAgeMs: 0 });
      await waitUntil(() => listMemoryMounts().length === 0 && listGroups().length === 0);
      await later.close();
      expect(running.phase).toBe('running');
    });

    it('have parent directories that only root of the machine can enter', async () => {
      await start('r', emptyDir('scratch', '/scratch'), named('web'));
      for (const kind of ['empty', 'named'])
        expect(statSync(path.join(volumeDirectory, kind)).mode & 0o777).toBe(0o700);
    });

    it('are removed with all content of an empty directory, but not with the targets of links', async () => {
      const outside = path.join(allowed, 'outside');
      mkdirSync(outside);
      writeFileSync(path.join(outside, 'kept'), '');
      const container = await start('r', emptyDir('s', '/s'));
      await runScript(
        container,
        [
          `ln -s ${outside} /s/link`,
          'mkdir -p /s/closed/sub && chown -R 1234:4321 /s/closed && chmod 0 /s/closed/sub /s/closed',
          'echo x > /s/immutable',
        ].join('\n'),
      );
      execFileSync('chattr', ['+i', path.join(volumeDirectory, 'empty', 'r', 's', 'immutable')]);
      await stopAndRemove(container);
      expect(listGroups()).toEqual([]);
      expect(readdirSync(outside)).toEqual(['kept']);
    });

    it('of unknown groups are removed by the sweep when they are old', async () => {
      await start('known', emptyDir('s', '/s'));
      mkdirSync(path.join(volumeDirectory, 'empty', 'unknown', 's'), { recursive: true });
      const sweeping = (orphanAgeMs: number): Promise<void> =>
        openCriRuntime({ ...machine.options, orphanAgeMs }).then((runtime) => runtime.close());
      await sweeping(3_600_000);
      expect(listGroups()).toEqual(['known', 'unknown']);
      await sweeping(0);
      expect(listGroups()).toEqual(['known']);
    });

    it('are removed after a failed start unless another container of the group uses them', async () => {
      const failing = aScriptRequest('', {
        group: 'r',
        command: ['/no/such/program'],
        volumes: [emptyDir('s', '/s')],
      });
      await expect(machine.runtime.start(failing)).rejects.toMatchObject({ kind: 'invalid' });
      expect(listGroups()).toEqual([]);
      await start('r', emptyDir('s', '/s'));
      const again = aScriptRequest('', {
        group: 'r',
        command: ['/no/such/program'],
        volumes: [emptyDir('s', '/s')],
      });
      await expect(machine.runtime.start(again)).rejects.toMatchObject({ kind: 'invalid' });
      expect(listGroups()).toEqual(['r']);
    });

    it('are removed by a later agent when it removes the last container of their group', async () => {
      await start('r', emptyDir('s', '/s'));
      const later = await machine.reopen();
      expect(listGroups()).toEqual(['r']);
      await removeAll(later);
      expect(listGroups()).toEqual([]);
    });

    it('with a name belong to one workload and stay after the removal of a container', async () => {
      const web = await start('a', named('web'));
      await runScript(web, 'echo mine > /data/x');
      const other = await start('b', named('other'));
      expect(await runScript(other, 'ls /data')).toBe('');
      await stopAndRemove(web);
      const later = await start('c', named('web'));
      expect(await runScript(later, 'cat /data/x; stat -c %a /data')).toBe('mine\n777');
      const kept = path.join(volumeDirectory, 'named', 'default', 'web', 'db', 'x');
      expect(readFileSync(kept, 'utf8')).toBe('mine\n');
    });

    it('include a host path, a directory or a file, writable or read-only', async () => {
      writeFileSync(path.join(allowed, 'from-host'), 'hello');
      const writing = await start('a', hostPath(allowed));
      expect(
        await runScript(writing, 'cat /host/from-host; echo back > /host/from-container'),
      ).toBe('hello');
      expect(readFileSync(path.join(allowed, 'from-container'), 'utf8')).toBe('back\n');
      const reading = await start('b', hostPath(allowed, true));
      expect(await runScript(reading, 'echo x > /host/y || echo refused')).toMatch(
        /Read-only file system\nrefused/,
      );
      expect(
        await runScript(
          reading,
          'chmod 700 /host || echo refused; rm /host/from-host || echo refused',
        ),
      ).toMatch(/refused[\s\S]*refused/);
      const file = await start('c', hostPath(path.join(allowed, 'from-host'), true));
      expect(await runScript(file, 'cat /host')).toBe('hello');
    });

    it('are refused for a host path that is not allowed, also through a symbolic link', async () => {
      symlinkSync('/etc', path.join(allowed, 'sneaky'));
      const refused = async (from: string, expectedText: RegExp): Promise<void> => {
        await expect(start('r', hostPath(from))).rejects.toMatchObject({
          kind: 'precondition',
          message: expect.stringMatching(expectedText),
        });
      };
      await refused('/etc', /^volumes\.host: \/etc is not below .*--allow-host-path/);
      await refused(path.join(allowed, 'sneaky'), /sneaky is a link to \/etc, which is not below/);
      await refused(
        path.join(allowed, '..', path.basename(allowed), 'sneaky', 'ssl'),
        /is a link to \/etc\/ssl, which/,
      );
      await refused(
        path.join(allowed, 'missing'),
        /missing does not exist on this node: create it first/,
      );
      expect(existsSync(path.join(allowed, 'missing'))).toBe(false);
      expect(await machine.runtime.list()).toEqual([]);
    });

    it('are refused for the runtime socket and guarded paths even when all paths are allowed', async () => {
      const all = await openRealCriMachine({
        allowedHostPaths: ['/'],
        guardedPaths: [path.join(allowed, 'agent')],
      });
      mkdirSync(path.join(allowed, 'agent', 'keys'), { recursive: true });
      symlinkSync(path.dirname(SOCKET ?? ''), path.join(allowed, 'socket'));
      const { logDirectory } = all.options;
      const guarded = [
        '/',
        '/run',
        '/var/run',
        SOCKET ?? '',
        path.join(allowed, 'socket'),
        allowed,
        path.join(allowed, 'agent', 'keys'),
      ];
      for (const from of [...guarded, logDirectory, path.dirname(logDirectory)]) {
        await expect(startIdle(all.runtime, { volumes: [hostPath(from)] })).rejects.toMatchObject({
          kind: 'precondition',
          message: expect.stringContaining('cannot be mounted in containers'),
        });
      }
      const { containerId } = await startIdle(all.runtime, {
        volumes: [hostPath('/etc/hostname', true)],
      });
      expect((await execIn(all.runtime, containerId, 'cat /host')).exitCode).toBe(0);
      await all.dispose();
    });

    it('are mounted in the order of their depth, also below a read-only volume', async () => {
      const below = [emptyDir('sub', '/data/sub'), emptyDir('deep', '/data/sub/a/b', true)];
      const writable = await start('a', ...below, emptyDir('data', '/data'));
      expect(
        await runScript(
          writable,
          'echo x > /data/sub/x && ls /data /data/sub && echo y > /data/y && echo ok',
        ),
      ).toMatch(/ok$/);
      expect(await runScript(writable, 'grep -c " /data" /proc/self/mounts')).toBe('3');
      const readOnly = await start(
        'b',
        emptyDir('deep', '/data/sub/a/b'),
        emptyDir('data', '/data', true),
      );
      expect(
        await runScript(
          readOnly,
          'echo x > /data/sub/a/b/x && cat /data/sub/a/b/x; echo x > /data/x || echo refused',
        ),
      ).toMatch(/^x\n[\s\S]*Read-only file system\nrefused$/);
    });

    it('cannot move a mount point out of a volume by a symbolic link', async () => {
      const first = await start('a', named('web'));
      await runScript(first, `ln -s ${allowed} /data/sub`);
      const second = start(
        'b',
        named('web', { readOnly: true }),
        emptyDir('below', '/data/sub/made'),
      );
      await second.catch(() => undefined);
      expect(readdirSync(allowed)).toEqual([]);
    });

    it('are private mounts, which do not show later mounts of the machine', async () => {
      mkdirSync(path.join(allowed, 'late'));
      const reading = await start('a', hostPath(allowed));
      expect(await runScript(reading, 'grep " /host " /proc/self/mountinfo')).not.toMatch(
        /shared:|master:/,
      );
    });

    it.each([
      '/',
      '/proc',
      '/proc/sys',
      '/sys',
      '/sys/fs/cgroup',
      '/dev',
      '//',
      '/proc/',
      '/a/../proc',
    ])('are refused at the mount path %s', async (mountPath) => {
      await expect(start('r', emptyDir('v', mountPath))).rejects.toMatchObject({
        kind: 'invalid',
        message: expect.stringMatching(/^volumes\.v: /),
      });
      expect(listGroups()).toEqual([]);
    });

    it('are refused with the path when their directory cannot be created', async () => {
      mkdirSync(volumeDirectory);
      writeFileSync(path.join(volumeDirectory, 'named'), '');
      chmodSync(volumeDirectory, 0o700);
      const request: Partial<ContainerRequest> = { volumes: [named('web')] };
      await expect(startIdle(machine.runtime, request)).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringMatching(
          /^volumes\.data: .*named\/default\/web\/db cannot be created: /,
        ),
      });
    });
  },
);
