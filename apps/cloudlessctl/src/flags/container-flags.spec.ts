import {
  ImagePull_Policy as Policy,
  Volume_EmptyDir_Medium as Medium,
  type CreateWorkloadRequest,
  type UpdateWorkloadRequest,
} from '@cloudless/api';
import { aWorkload, runCli } from '../testing/run-cli.js';

/** Returns the spec that `workload create` sends for the flags. */
async function createWith(flags: readonly string[]): Promise<CreateWorkloadRequest['spec']> {
  const requests: CreateWorkloadRequest[] = [];
  const coordinator = {
    createWorkload: (request: CreateWorkloadRequest) => (requests.push(request), aWorkload()),
  };
  const argv = ['workload', 'create', 'web', '--image', 'nginx:alpine', ...flags];
  expect(await runCli(argv, { coordinator })).toMatchObject({ exitCode: 0, stderr: '' });
  return requests[0]?.spec;
}

/** Returns the request that `workload update` sends for the flags. */
async function updateWith(flags: readonly string[]): Promise<UpdateWorkloadRequest | undefined> {
  const requests: UpdateWorkloadRequest[] = [];
  const coordinator = {
    updateWorkload: (request: UpdateWorkloadRequest) => (requests.push(request), aWorkload()),
  };
  expect(await runCli(['workload', 'update', 'web', ...flags], { coordinator })).toMatchObject({
    exitCode: 0,
    stderr: '',
  });
  return requests[0];
}

describe('container flags', () => {
  it.each<{ flags: string[]; spec: object }>([
    {
      flags: ['--pull', 'if-not-present'],
      spec: { imagePull: { policy: Policy.IF_NOT_PRESENT } },
    },
    { flags: ['--pull', 'always'], spec: { imagePull: { policy: Policy.ALWAYS } } },
    {
      flags: ['--user', '1000', '--group', '0'],
      spec: { security: { runAsUser: 1000n, runAsGroup: 0n } },
    },
    {
      flags: [
        '--cap-drop',
        'ALL',
        '--cap-add',
        'NET_ADMIN',
        '--cap-add',
        'KILL',
        '--runtime-class',
        'runsc',
      ],
      spec: {
        security: {
          capabilitiesDrop: ['ALL'],
          capabilitiesAdd: ['NET_ADMIN', 'KILL'],
          runtimeClass: 'runsc',
        },
      },
    },
    {
      flags: ['--non-root', '--read-only', '--privileged'],
      spec: { security: { runAsNonRoot: true, readOnlyRootFilesystem: true, privileged: true } },
    },
    {
      flags: ['--host-network', '--hostname', 'a', '--dns', '10.0.0.1', '--dns', '::1'],
      spec: { network: { hostNetwork: true, hostname: 'a', dnsServers: ['10.0.0.1', '::1'] } },
    },
    {
      flags: [
        '--extra-host',
        'db:10.0.0.1',
        '--extra-host',
        'cache:::1',
        '--extra-host',
        'db.internal=10.0.0.1',
      ],
      spec: {
        network: {
          extraHosts: [
            { ip: '10.0.0.1', hostnames: ['db'] },
            { ip: '::1', hostnames: ['cache'] },
            { ip: '10.0.0.1', hostnames: ['db.internal'] },
          ],
        },
      },
    },
    {
      flags: ['--no-init', '--shm-size', '128Mi'],
      spec: { init: false, shmSizeBytes: 128n << 20n },
    },
    { flags: ['--init'], spec: { init: true } },
    { flags: ['--identity'], spec: { identity: {} } },
    { flags: ['--no-identity'], spec: {} },
    {
      flags: [
        '--ulimit',
        'nofile=1024:4096',
        '--ulimit',
        'core=0',
        '--ulimit',
        'memlock=unlimited',
        '--ulimit',
        'nproc=5:-1',
      ],
      spec: {
        ulimits: [
          { name: 'nofile', soft: 1024n, hard: 4096n },
          { name: 'core', soft: 0n, hard: 0n },
          { name: 'memlock', soft: -1n, hard: -1n },
          { name: 'nproc', soft: 5n, hard: -1n },
        ],
      },
    },
    {
      flags: [
        '--sysctl',
        'net.ipv4.ip_local_port_range=1024 65000',
        '--sysctl',
        'net.core.somaxconn=1024',
      ],
      spec: {
        sysctls: { 'net.ipv4.ip_local_port_range': '1024 65000', 'net.core.somaxconn': '1024' },
      },
    },
    {
      flags: [
        '--device',
        '/dev/fuse',
        '--device',
        '/dev/kvm:/dev/x',
        '--device',
        '/dev/a:/dev/b:r',
      ],
      spec: {
        devices: [
          { hostPath: '/dev/fuse', containerPath: '', permissions: '' },
          { hostPath: '/dev/kvm', containerPath: '/dev/x' },
          { hostPath: '/dev/a', containerPath: '/dev/b', permissions: 'r' },
        ],
      },
    },
    {
      flags: [
        '--user-name',
        'nginx',
        '--group-add',
        '5',
        '--group-add',
        '6',
        '--fs-group',
        '0',
        '--platform',
        'linux/arm64',
      ],
      spec: {
        security: { user: 'nginx', supplementalGroups: [5n, 6n], fsGroup: 0n },
        imagePull: { platform: 'linux/arm64' },
      },
    },
    {
      flags: ['--pids-limit', '50', '--cpu-limit', '0.5'],
      spec: { resources: { limits: { pids: 50, cpuMillis: 500 } } },
    },
    {
      flags: ['--port', 'http=8080:80', '--port', '53:53/udp', '--port', '81'],
      spec: {
        ports: [
          { name: 'http', hostPort: 8080, containerPort: 80 },
          { hostPort: 53, containerPort: 53, protocol: 1 },
          { hostPort: 0, containerPort: 81 },
        ],
      },
    },
  ])('set the fields of the spec for $flags', async ({ flags, spec }) => {
    expect(await createWith(flags)).toMatchObject({ image: 'nginx:alpine', ...spec });
  });

  it('do not take the next word as a value when the flag is a switch', async () => {
    const requests: CreateWorkloadRequest[] = [];
    const coordinator = {
      createWorkload: (request: CreateWorkloadRequest) => (requests.push(request), aWorkload()),
    };
    await runCli(['workload', 'create', '--read-only', 'web', '--image', 'x'], { coordinator });
    expect(requests).toMatchObject([
      { name: 'web', spec: { security: { readOnlyRootFilesystem: true } } },
    ]);
  });

  it.each([
    {
      given: 'data:/var/lib/data',
      volume: { name: 'data', mountPath: '/var/lib/data', source: { value: { name: 'data' } } },
    },
    {
      given: 'data:/a:ro',
      volume: { name: 'data', mountPath: '/a', readOnly: true, source: { case: 'named' } },
    },
    {
      given: '/srv/www:/usr/share/nginx/html:ro',
      volume: {
        name: 'usr-share-nginx-html',
        mountPath: '/usr/share/nginx/html',
        readOnly: true,
        source: { case: 'hostPath', value: { path: '/srv/www' } },
      },
    },
    {
      given: '/var/cache/_X:rw',
      volume: {
        name: 'var-cache-x',
        mountPath: '/var/cache/_X',
        readOnly: false,
        source: { case: 'emptyDir' },
      },
    },
    {
      given: '/run:memory=64Mi',
      volume: {
        name: 'run',
        mountPath: '/run',
        source: { value: { medium: Medium.MEMORY, sizeLimitBytes: 64n << 20n } },
      },
    },
    {
      given: '/run:memory',
      volume: {
        source: { case: 'emptyDir', value: { medium: Medium.MEMORY, sizeLimitBytes: 0n } },
      },
    },
    { given: `/${'a'.repeat(70)}`, volume: { name: 'a'.repeat(63), source: { case: 'emptyDir' } } },
  ])('convert --volume $given to a volume', async ({ given, volume }) => {
    expect((await createWith(['--volume', given]))?.volumes).toMatchObject([volume]);
  });

  it('update only the given fields, and reset them with --no-FLAG or none', async () => {
    const [changed, reset] = [
      await updateWith(['--read-only', '--user', '5']),
      await updateWith(['--no-read-only']),
    ];
    expect(changed?.updateMask?.paths).toEqual([
      'security.run_as_user',
      'security.read_only_root_filesystem',
    ]);
    expect(reset?.updateMask?.paths).toEqual(['security.read_only_root_filesystem']);
    expect([
      changed?.spec?.security?.readOnlyRootFilesystem,
      reset?.spec?.security?.readOnlyRootFilesystem,
    ]).toEqual([true, false]);
    const emptied = await updateWith([
      '--volume',
      'none',
      '--cap-add',
      'none',
      '--extra-host',
      'none',
    ]);
    expect(emptied?.updateMask?.paths).toEqual([
      'volumes',
      'security.capabilities_add',
      'network.extra_hosts',
    ]);
    expect([emptied?.spec?.volumes, emptied?.spec?.security?.capabilitiesAdd]).toEqual([[], []]);
  });

  const volumeProblem =
    'expected NAME:/PATH, /HOST/PATH:/PATH or /PATH, each optionally with :ro, or /PATH:memory=64Mi, for example data:/var/lib/data, got';
  it.each([
    { flags: ['--volume', 'data'], says: `--volume: ${volumeProblem} "data"` },
    { flags: ['--volume', 'data:rel'], says: `--volume: ${volumeProblem} "data:rel"` },
    { flags: ['--volume', './a:/b'], says: `--volume: ${volumeProblem} "./a:/b"` },
    { flags: ['--volume', '/a:/b:rx'], says: `--volume: ${volumeProblem} "/a:/b:rx"` },
    { flags: ['--volume', 'data:/a:memory'], says: `--volume: ${volumeProblem} "data:/a:memory"` },
    {
      flags: ['--user', 'nginx'],
      says: '--user: expected a numeric id, got "nginx"; use --user-name for a name',
    },
    { flags: ['--group-add', 'disk'], says: '--group-add: expected a numeric id, got "disk"' },
    {
      flags: ['--ulimit', 'nofile'],
      says: '--ulimit: expected NAME=SOFT or NAME=SOFT:HARD, each a number or unlimited, got "nofile"',
    },
    {
      flags: ['--device', 'fuse'],
      says: '--device: expected /HOST/PATH[:/PATH[:rwm]], got "fuse"',
    },
    {
      flags: ['--sysctl', 'a'],
      says: '--sysctl: expected key=value, or key- to remove it, got "a"',
    },
    {
      flags: ['--user', '1000:1000'],
      says: '--user: expected a numeric id, got "1000:1000"; use --group for the group',
    },
    {
      flags: ['--extra-host', 'db'],
      says: '--extra-host: expected NAME:ADDRESS, for example db:10.0.0.5, got "db"',
    },
    { flags: ['--group', '-1'], says: '--group: expected a numeric id, got "-1"' },
    {
      flags: ['--pull', 'allways'],
      says: '--pull: expected one of IfNotPresent, Always, Never, got "allways"; did you mean Always?',
    },
    {
      flags: ['--replicas', '99999999999'],
      says: '--replicas: expected a whole number from 0 to 1000000, got "99999999999"',
    },
    {
      flags: ['--pids-limit', '9999999999'],
      says: '--pids-limit: expected a whole number from 0 to 999999999, got "9999999999"',
    },
    { flags: ['--pids-limit', 'x'], says: '--pids-limit: expected a whole number, got "x"' },
    {
      flags: ['--port', '1:2:3'],
      says: '--port: expected 8080, http=8080, dns=53/udp or, with a host port, 80:8080, got "1:2:3"',
    },
  ])('with an invalid value are rejected: $says', async ({ flags, says }) => {
    const { exitCode, stderr } = await runCli(['workload', 'update', 'web', ...flags]);
    expect({ exitCode, stderr }).toEqual({ exitCode: 2, stderr: `cloudlessctl: ${says}\n` });
  });
});
