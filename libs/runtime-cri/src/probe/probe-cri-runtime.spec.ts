import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { create } from '@bufbuild/protobuf';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { ManualClock, settle } from '@cloudless/base/testing';
import { systemClock } from '@cloudless/app-kit';
import { PodSandboxConfigSchema } from '../gen/runtime/v1/api_pb.js';
import { probeCriRuntime, type CriProbe, type CriProbeOptions } from '../index.js';
import { readMachineFeatures } from '../system/machine-features.js';
import { FakeCriServer } from '../testing/fake-cri-server.js';
import { openRuntime } from '../testing/open-runtime.js';
import { FILTER_SKIP_REASON } from '../testing/packet-filter.js';
import { SOCKET, waitUntil, SKIP_REASON } from '../testing/real-cri-machine.js';
import { toCapabilities } from './capabilities.js';

let server: FakeCriServer;
beforeEach(async () => {
  server = new FakeCriServer();
  await server.listen();
});
afterEach(() => server.dispose());

const probe = (overrides: Partial<CriProbeOptions> = {}): Promise<CriProbe> =>
  probeCriRuntime({ socketPath: server.socketPath, clock: systemClock, ...overrides });

describe('probeCriRuntime', () => {
  it('returns name, version and capabilities of a ready runtime without foreign sandboxes', async () => {
    expect(await probe()).toMatchObject({
      name: 'fake',
      version: '1.0',
      ready: true,
      notReady: [],
      foreign: { count: 0, names: [] },
      capabilities: expect.arrayContaining(['runtime.cri', 'runtime-class.runc']),
    });
    expect(server.calls).toEqual(['version', 'status', 'listPodSandbox']);
  });

  it('returns the reasons when a required condition is missing or false', async () => {
    const message = 'cni plugin not initialized';
    server.conditions.delete('RuntimeReady');
    server.conditions.set('NetworkReady', {
      type: 'NetworkReady',
      status: false,
      reason: 'NetworkPluginNotReady',
      message,
    });
    server.conditions.set('NoOldSettings', {
      type: 'NoOldSettings',
      status: false,
      reason: 'Old',
      message: 'old',
    });
    const { ready, notReady } = await probe();
    expect(ready).toBe(false);
    expect(notReady).toEqual([
      'RuntimeReady is not reported',
      'NetworkReady is false: cni plugin not initialized (NetworkPluginNotReady)',
    ]);
  });

  it('returns the number of sandboxes of other programs and the names of three of them', async () => {
    const add = (namespace: string, name: string, labels = {}): string =>
      server.addSandbox(create(PodSandboxConfigSchema, { metadata: { namespace, name }, labels }));
    add('cloudless', 'ours', { 'io.cloudless.cluster': 'another' });
    for (const name of ['a', 'b', 'c', 'd']) add('kube-system', name);
    expect((await probe()).foreign).toEqual({
      count: 4,
      names: ['kube-system/a', 'kube-system/b', 'kube-system/c'],
    });
  });

  it('rejects with the socket path when no runtime answers', async () => {
    await server.disconnect();
    await expect(probe()).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(server.socketPath),
    });
  });

  it('rejects after 5 s when the runtime accepts the connection but never answers', async () => {
    await server.disconnect();
    const stuck = createServer();
    await new Promise<void>((resolve) => stuck.listen(server.socketPath, resolve));
    const clock = new ManualClock();
    const probing = probe({ clock });
    await settle();
    await clock.advance(5_000);
    await expect(probing).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(/Version in 5000 ms/),
    });
    await new Promise((resolve) => stuck.close(resolve));
  });
});

describe('toCapabilities', () => {
  const all = {
    apparmor: true,
    selinux: true,
    controllers: new Set(['cpu', 'memory', 'pids']),
    memoryMounts: true,
    processLimits: true,
    packetFilter: true,
    signals: false,
    hasSysctl: () => false,
    resolvePath: (path: string) => path,
    platform: 'linux/amd64',
  };
  const none = {
    apparmor: false,
    selinux: false,
    controllers: new Set<string>(),
    memoryMounts: false,
    processLimits: false,
    packetFilter: false,
    signals: false,
    hasSysctl: () => false,
    resolvePath: (path: string) => path,
    platform: 'linux/amd64',
  };
  const plain = [
    'container.init',
    'exec.tty',
    'network.host',
    'platform.linux/amd64',
    'ports.host',
    'runtime.cri',
    'security.context',
    'security.groups',
    'security.username',
    'volumes.emptydir',
    'volumes.named',
  ];
  const limits = ['limits.cpu', 'limits.memory', 'limits.pids'];
  const config = (value: object): { info: Record<string, string>; runtimeHandlers: never[] } => ({
    info: { config: JSON.stringify(value) },
    runtimeHandlers: [],
  });

  it.each([
    { name: 'a machine without features', status: config({}), machine: none, expected: [] },
    {
      name: 'all features of the machine',
      status: config({}),
      machine: all,
      expected: [
        ...limits,
        'security.apparmor',
        'security.selinux',
        'container.shm',
        'volumes.memory',
      ],
    },
    {
      name: 'features that the runtime configuration disables',
      status: config({ disableCgroup: true, disableApparmor: true, enableSelinux: false }),
      machine: { ...all, memoryMounts: false },
      expected: [],
    },
    {
      name: 'runtime classes, of older and newer runtimes',
      status: {
        ...config({ containerd: { runtimes: { runc: {}, kata: {} } } }),
        runtimeHandlers: [{ name: '' }, { name: 'runc' }, { name: 'gvisor' }],
      },
      machine: none,
      expected: ['runtime-class.gvisor', 'runtime-class.kata', 'runtime-class.runc'],
    },
    {
      name: 'a configuration that is not JSON',
      status: { info: { config: '{' }, runtimeHandlers: [] },
      machine: none,
      expected: [],
    },
    {
      name: 'a configuration of another shape',
      status: config([{ containerd: 3 }]),
      machine: none,
      expected: [],
    },
  ])(
    'returns $expected beside the base capabilities for $name',
    ({ status, machine, expected }) => {
      expect(toCapabilities(status as never, machine, {})).toEqual([...plain, ...expected].sort());
    },
  );

  it('includes privileged containers and host paths only when the operator allows them', () => {
    const permissions = { allowedHostPaths: ['/srv'], allowPrivileged: true };
    expect(toCapabilities(config({}), none, permissions)).toEqual(
      [...plain, 'security.privileged', 'volumes.hostpath', 'host-path./srv'].sort(),
    );
    expect(
      toCapabilities(config({}), none, { allowedHostPaths: [], allowPrivileged: false }),
    ).toEqual(plain);
  });

  it('names each directory that containers may mount, and where a link to the directory leads', () => {
    const resolvePath = (path: string) => (path === '/data' ? '/mnt/disk1' : undefined);
    const permissions = { allowedHostPaths: ['/srv/', '/data', '/mnt/disk1'] };
    expect(
      toCapabilities(config({}), { ...none, resolvePath }, permissions).filter((name) =>
        name.startsWith('host-path.'),
      ),
    ).toEqual(['host-path./data', 'host-path./mnt/disk1', 'host-path./srv']);
  });

  it('includes ulimits only when the runtime is containerd', () => {
    const machine = { ...none, processLimits: true };
    expect(toCapabilities(config({ containerd: {} }), machine, {})).toEqual(
      [...plain, 'container.ulimits'].sort(),
    );
    expect(toCapabilities(config({ runtime: 'crio' }), machine, {})).toEqual(plain);
  });

  it.each([
    { name: 'runc', type: 'io.containerd.runc.v2', packetFilter: true, expected: true },
    { name: 'crun', type: 'io.containerd.runc.v2', packetFilter: true, expected: true },
    { name: 'runc', type: 'io.containerd.runc.v2', packetFilter: false, expected: false },
    { name: 'runsc', type: 'io.containerd.runsc.v1', packetFilter: true, expected: false },
    { name: 'kata', type: 'io.containerd.kata.v2', packetFilter: true, expected: false },
  ])(
    'includes limits of egress $expected for the default runtime $name when packetFilter is $packetFilter',
    ({ name, type, packetFilter, expected }) => {
      const runtimes = { [name]: { runtimeType: type }, other: {} };
      const status = config({ containerd: { defaultRuntimeName: name, runtimes } });
      const capabilities = toCapabilities(status, { ...none, packetFilter }, {});
      expect(capabilities.includes('network.egress')).toBe(expected);
    },
  );

  it('includes signals only for an agent that may send them', () => {
    expect(toCapabilities(config({}), { ...none, signals: true }, {})).toEqual(
      [...plain, 'files.signal'].sort(),
    );
  });

  it('includes each device that the operator allows once', () => {
    const allowed = { allowedDevices: ['/dev/kvm', '/dev/fuse', '/dev/kvm'] };
    expect(toCapabilities(config({}), none, allowed)).toEqual(
      [...plain, 'device./dev/fuse', 'device./dev/kvm'].sort(),
    );
  });

  it('includes the safe and the allowed kernel parameters, if the kernel has them', () => {
    const present = ['net.ipv4.tcp_syncookies', 'net.core.somaxconn'];
    const machine = { ...none, hasSysctl: (name: string) => present.includes(name) };
    expect(toCapabilities(config({}), machine, {})).toEqual(
      [...plain, 'sysctl.net.ipv4.tcp_syncookies'].sort(),
    );
    const allowed = { allowedSysctls: ['net.core.somaxconn', 'net.core.missing'] };
    expect(toCapabilities(config({}), machine, allowed)).toEqual(
      [...plain, 'sysctl.net.core.somaxconn', 'sysctl.net.ipv4.tcp_syncookies'].sort(),
    );
  });
});

describe('readMachineFeatures', () => {
  let root: string;
  beforeEach(() => void (root = mkdtempSync(path.join(tmpdir(), 'cloudless-root-'))));
  afterEach(() => rmSync(root, { recursive: true, force: true }));
  const write = (file: string, text: string): void => {
    mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    writeFileSync(path.join(root, file), text);
  };
  const read = (): object => {
    const {
      controllers,
      hasSysctl: _,
      resolvePath: __,
      platform,
      ...rest
    } = readMachineFeatures(root);
    expect(platform).toMatch(/^linux\//);
    return { ...rest, controllers: [...controllers] };
  };

  it('reports no feature for an empty root directory', () => {
    expect(read()).toEqual({
      apparmor: false,
      selinux: false,
      controllers: [],
      memoryMounts: false,
      processLimits: false,
      packetFilter: false,
      signals: false,
    });
  });

  it('reports AppArmor, SELinux and the controllers of cgroup v2 from the files of the kernel', () => {
    write('sys/module/apparmor/parameters/enabled', 'Y\n');
    write('sys/fs/selinux/enforce', '1');
    write('proc/self/attr/current', 'unconfined_u:unconfined_r:unconfined_t:s0\0');
    write('sys/fs/cgroup/cgroup.controllers', 'cpuset cpu io pids\n');
    expect(read()).toEqual({
      apparmor: true,
      selinux: true,
      controllers: ['cpu', 'pids'],
      memoryMounts: false,
      processLimits: false,
      packetFilter: false,
      signals: false,
    });
  });

  it('reports disabled AppArmor and SELinux as inactive, and the controllers of cgroup v1', () => {
    write('sys/module/apparmor/parameters/enabled', 'N\n');
    write('sys/fs/selinux/enforce', '0');
    write('proc/self/attr/current', 'kernel\0');
    for (const name of ['cpu', 'memory']) write(`sys/fs/cgroup/${name}/tasks`, '');
    expect(read()).toEqual({
      apparmor: false,
      selinux: false,
      controllers: ['cpu', 'memory'],
      memoryMounts: false,
      processLimits: false,
      packetFilter: false,
      signals: false,
    });
  });

  it.each([
    {
      name: 'root with the program prlimit',
      user: '0',
      program: 'usr/bin/prlimit',
      expected: true,
    },
    { name: 'root without the program prlimit', user: '0', program: 'usr/bin/x', expected: false },
    { name: 'another user', user: '1000', program: 'bin/prlimit', expected: false },
  ])('reports processLimits $expected for $name', ({ user, program, expected }) => {
    write('proc/self/status', `Uid:\t${user}\t${user}\n`);
    write(program, '');
    expect(read()).toMatchObject({ processLimits: expected });
  });

  it.each([
    { name: 'root with nft', user: '0', capabilities: '00000000a82435fb', program: 'nft' },
    { name: 'another user', user: '1000', capabilities: '00000000a82435fb', program: 'nft' },
    { name: 'root without NET_ADMIN', user: '0', capabilities: '00000000a82425fb', program: 'nft' },
    { name: 'root without nft', user: '0', capabilities: '00000000a82435fb', program: 'x' },
  ])(
    'reports packetFilter for $name: only root with NET_ADMIN, SYS_ADMIN and the programs has it',
    ({ user, ...found }) => {
      write('proc/self/status', `Uid:\t${user}\t${user}\nCapEff:\t${found.capabilities}\n`);
      for (const name of ['usr/bin/nsenter', 'usr/bin/unshare', `usr/sbin/${found.program}`])
        write(name, '');
      expect(read()).toMatchObject({ packetFilter: found.name === 'root with nft' });
    },
  );

  it('reports a kernel parameter when its file exists', () => {
    write('proc/sys/net/core/somaxconn', '4096');
    const { hasSysctl } = readMachineFeatures(root);
    expect(['net.core.somaxconn', 'net.core.other'].map(hasSysctl)).toEqual([true, false]);
  });

  it.each([
    {
      name: 'root',
      capabilities: '000001ffffffffff',
      systems: 'nodev\ttmpfs\n\text4\n',
      program: 'usr/bin/mount',
      expected: true,
    },
    {
      name: 'a user without SYS_ADMIN',
      capabilities: '0000000000000000',
      systems: 'nodev\ttmpfs\n',
      program: 'usr/bin/mount',
      expected: false,
    },
    {
      name: 'root without SYS_ADMIN, as in a container',
      capabilities: '00000000a80425fb',
      systems: 'nodev\ttmpfs\n',
      program: 'bin/mount',
      expected: false,
    },
    {
      name: 'root of a kernel without tmpfs',
      capabilities: '000001ffffffffff',
      systems: '\text4\n',
      program: 'bin/mount',
      expected: false,
    },
    {
      name: 'root without the program mount',
      capabilities: '000001ffffffffff',
      systems: 'nodev\ttmpfs\n',
      program: 'x',
      expected: false,
    },
  ])('reports memoryMounts $expected for $name', ({ capabilities, systems, program, expected }) => {
    write('proc/self/status', `Name:\tagent\nCapEff:\t${capabilities}\n`);
    write('proc/filesystems', `nodev\tsysfs\n${systems}`);
    write(program, '');
    expect(read()).toMatchObject({ memoryMounts: expected });
  });
});

describe('CriRuntime.capabilities', () => {
  it('returns the new capabilities after the runtime was restarted with another configuration', async () => {
    const runtime = await openRuntime(server, { allowPrivileged: true });
    try {
      expect(runtime.capabilities()).toEqual(
        expect.arrayContaining(['runtime-class.runc', 'security.privileged']),
      );
      await server.disconnect();
      await expect(runtime.list()).rejects.toMatchObject({ kind: 'unavailable' });
      expect(runtime.capabilities()).toContain('runtime-class.runc');
      server.config = { containerd: { runtimes: { kata: {} } } };
      await server.listen();
      await runtime.list();
      await waitUntil(() => runtime.capabilities().includes('runtime-class.kata'));
      expect(runtime.capabilities()).not.toContain('runtime-class.runc');
    } finally {
      await runtime.close();
    }
  });
});

const itReal = SKIP_REASON === undefined ? it : it.skip;
itReal(
  `probeCriRuntime returns the capabilities of a real runtime that is ready${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  async () => {
    const { name, version, ready, notReady, capabilities } = await probeCriRuntime({
      socketPath: SOCKET ?? '',
      clock: systemClock,
    });
    expect({ name, ready, notReady }).toEqual({
      name: expect.stringMatching(/containerd|cri-o/),
      ready: true,
      notReady: [],
    });
    expect(version).toMatch(/\d+\.\d+/);
    expect(capabilities).toEqual(
      expect.arrayContaining(['runtime.cri', 'limits.memory', 'limits.pids']),
    );
    expect(capabilities.includes('network.egress')).toBe(FILTER_SKIP_REASON === undefined);
  },
);
