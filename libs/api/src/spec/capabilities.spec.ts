import { create, type MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  Disconnect_Mode as Mode,
  Volume_EmptyDir_Medium as Medium,
  Reload_Mode as ReloadMode,
  WorkloadSpecSchema,
  listRequiredCapabilities,
} from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';
import { listSpecLeaves } from '../testing/index.js';
import { FILES_CAPABILITY, FILES_SIGNAL_CAPABILITY } from './files-rules.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;
const capabilitiesOf = (init: Init): readonly string[] =>
  listRequiredCapabilities(create(WorkloadSpecSchema, init));
const allLimits = { limits: { cpuMillis: 1, memoryBytes: 1n, pids: 1 } };

describe('listRequiredCapabilities', () => {
  it.each<{ name: string; given: Init; needs: string[] }>([
    { name: 'a command', given: { command: ['b'] }, needs: ['runtime.process'] },
    {
      name: 'a process by name',
      given: { command: ['b'], runtime: 'process' },
      needs: ['runtime.process'],
    },
    {
      name: 'limits of a process, which no node supports',
      given: { command: ['b'], resources: allLimits },
      needs: [
        'runtime.process',
        'process.limits.cpu',
        'process.limits.memory',
        'process.limits.pids',
      ],
    },
    {
      name: 'limits of 0, which mean no limit',
      given: { command: ['b'], resources: { limits: { cpuMillis: 0, memoryBytes: 0n } } },
      needs: ['runtime.process'],
    },
    {
      name: 'an EXCLUSIVE process',
      given: { command: ['b'], disconnect: { mode: Mode.EXCLUSIVE } },
      needs: ['runtime.process', 'disconnect.exclusive'],
    },
    { name: 'an image', given: { image: 'a' }, needs: ['runtime.cri'] },
    {
      name: 'an image with a command',
      given: { image: 'a', command: ['b'] },
      needs: ['runtime.cri'],
    },
    {
      name: 'a runtime by name',
      given: { command: ['b'], runtime: 'cri' },
      needs: ['runtime.cri'],
    },
    {
      name: 'limits of a container',
      given: { image: 'a', resources: allLimits },
      needs: ['runtime.cri', 'limits.cpu', 'limits.memory', 'limits.pids'],
    },
    {
      name: 'an EXCLUSIVE container of an older version, which no node supports',
      given: { image: 'a', disconnect: { mode: Mode.EXCLUSIVE } },
      needs: ['runtime.cri', 'cri.disconnect.exclusive'],
    },
    {
      name: 'an init process',
      given: { image: 'a', init: true },
      needs: ['runtime.cri', 'container.init'],
    },
    {
      name: 'an identity',
      given: { image: 'a', identity: {} },
      needs: ['runtime.cri', 'identity.workload'],
    },
    {
      name: 'the size of /dev/shm',
      given: { image: 'a', shmSizeBytes: 1n },
      needs: ['runtime.cri', 'container.shm'],
    },
    {
      name: 'an empty directory in memory',
      given: {
        image: 'a',
        volumes: [{ source: { case: 'emptyDir', value: { medium: Medium.MEMORY } } }],
      },
      needs: ['runtime.cri', 'volumes.emptydir', 'volumes.memory'],
    },
    {
      name: 'a user by name',
      given: { image: 'a', security: { user: 'nginx' } },
      needs: ['runtime.cri', 'security.username'],
    },
    {
      name: 'supplemental groups',
      given: { image: 'a', security: { supplementalGroups: [1n], fsGroup: 0n } },
      needs: ['runtime.cri', 'security.groups'],
    },
    {
      name: 'kernel parameters',
      given: { image: 'a', sysctls: { 'net.core.somaxconn': '1', 'kernel.shm_rmid_forced': '1' } },
      needs: ['runtime.cri', 'sysctl.kernel.shm_rmid_forced', 'sysctl.net.core.somaxconn'],
    },
    {
      name: 'devices, one of them twice',
      given: {
        image: 'a',
        devices: ['/dev/kvm', '/dev/fuse', '/dev/kvm'].map((hostPath) => ({ hostPath })),
      },
      needs: ['runtime.cri', 'device./dev/fuse', 'device./dev/kvm'],
    },
    {
      name: 'the platform of an image',
      given: { image: 'a', imagePull: { platform: 'linux/arm64' } },
      needs: ['runtime.cri', 'platform.linux/arm64'],
    },
    {
      name: 'limits of each process',
      given: { image: 'a', ulimits: [{ name: 'core' }, { name: 'nofile', soft: 500n }] },
      needs: ['runtime.cri', 'container.ulimits'],
    },
    { name: 'no init process', given: { image: 'a', init: false }, needs: ['runtime.cri'] },
    {
      name: 'requests',
      given: { image: 'a', resources: { requests: { cpuMillis: 5 } } },
      needs: ['runtime.cri'],
    },
    {
      name: 'a port',
      given: { image: 'a', ports: [{ containerPort: 80 }] },
      needs: ['runtime.cri'],
    },
    {
      name: 'host ports',
      given: {
        image: 'a',
        ports: [
          { containerPort: 80, hostPort: 1 },
          { containerPort: 81, hostPort: 2 },
        ],
      },
      needs: ['runtime.cri', 'ports.host'],
    },
    {
      name: 'host_network with a port',
      given: {
        image: 'a',
        network: { hostNetwork: true },
        ports: [{ containerPort: 80, hostPort: 80 }],
      },
      needs: ['runtime.cri', 'network.host'],
    },
    {
      name: 'a hostname and DNS servers',
      given: { image: 'a', network: { hostname: 'x', dnsServers: ['::1'] } },
      needs: ['runtime.cri'],
    },
    {
      name: 'a limit of destinations, also to none',
      given: { image: 'a', network: { egress: {} } },
      needs: ['runtime.cri', 'network.egress'],
    },
    {
      name: 'volumes of all kinds, some twice',
      given: {
        image: 'a',
        volumes: [
          { source: { case: 'named', value: {} } },
          { source: { case: 'emptyDir', value: {} } },
          { source: { case: 'hostPath', value: { path: '/srv/b' } } },
          { source: { case: 'hostPath', value: { path: '/srv/a' } } },
          { source: { case: 'hostPath', value: { path: '/srv/b' } } },
          { source: { case: 'emptyDir', value: {} } },
        ],
      },
      needs: [
        ...['runtime.cri', 'host-path./srv/a', 'host-path./srv/b'],
        ...['volumes.emptydir', 'volumes.hostpath', 'volumes.named'],
      ],
    },
    {
      name: 'an empty security context',
      given: { image: 'a', security: {} },
      needs: ['runtime.cri'],
    },
    {
      name: 'a user',
      given: { image: 'a', security: { runAsUser: 0n } },
      needs: ['runtime.cri', 'security.context'],
    },
    {
      name: 'no_new_privileges false',
      given: { image: 'a', security: { noNewPrivileges: false } },
      needs: ['runtime.cri', 'security.context'],
    },
    {
      name: 'settings that only some nodes support',
      given: {
        image: 'a',
        security: { apparmorProfile: 'Unconfined', selinuxOptions: '::a_t:', privileged: true },
      },
      needs: ['runtime.cri', 'security.apparmor', 'security.selinux', 'security.privileged'],
    },
    {
      name: 'a process with a secret',
      given: { command: ['a'], secrets: [{ name: 'db' }] },
      needs: ['runtime.process', 'files.secrets'],
    },
    {
      name: 'a container that gets a signal when a config changes',
      given: { image: 'a', configs: [{ name: 'web', reload: { mode: ReloadMode.SIGNAL } }] },
      needs: ['runtime.cri', 'files.secrets', 'files.signal'],
    },
    {
      name: 'an image from a registry with a password',
      given: { image: 'a', imagePull: { secret: 'registry' } },
      needs: ['runtime.cri', 'images.credentials'],
    },
    {
      name: 'a runtime class',
      given: { image: 'a', security: { runtimeClass: 'runsc' } },
      needs: ['runtime.cri', 'runtime-class.runsc'],
    },
  ])('returns $needs for $name', ({ given, needs }) => {
    expect(capabilitiesOf(given)).toEqual(needs);
  });

  it('reads the disconnect policy from the spec, because a template has none', () => {
    const template = create(WorkloadSpecSchema, { command: ['a'] });
    const spec = create(WorkloadSpecSchema, {
      command: ['a'],
      disconnect: { mode: Mode.EXCLUSIVE },
    });
    expect(listRequiredCapabilities(template, spec)).toEqual([
      'runtime.process',
      'disconnect.exclusive',
    ]);
    expect(listRequiredCapabilities(spec, template)).toEqual(['runtime.process']);
    expect(listRequiredCapabilities(template, undefined)).toEqual(['runtime.process']);
  });

  it.each(listSpecLeaves().filter(({ path }) => path.startsWith('security.')))(
    'returns a capability beside runtime.cri for $path',
    ({ spec }) => {
      expect(capabilitiesOf({ ...spec, image: 'a' }).length).toBe(2);
    },
  );

  it('returns no duplicates, and never capabilities of both runtimes, for any spec', () => {
    fc.assert(
      fc.property(arbitraryMessage(WorkloadSpecSchema), (spec) => {
        // Agents deliver files to replicas of both runtimes.
        const needs = listRequiredCapabilities(spec).filter(
          (name) => name !== FILES_CAPABILITY && name !== FILES_SIGNAL_CAPABILITY,
        );
        expect(new Set(needs).size).toBe(needs.length);
        const processCapabilities = needs.filter((name) =>
          /^(runtime\.process$|process\.|disconnect\.)/.test(name),
        );
        expect([0, needs.length]).toContain(processCapabilities.length);
      }),
    );
  });
});
