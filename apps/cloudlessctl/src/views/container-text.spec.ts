import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  ImagePullStatus_Phase as PullPhase,
  ImagePull_Policy as Policy,
  Port_Protocol as Protocol,
  Volume_EmptyDir_Medium as Medium,
  ReplicaStatusSchema,
  WorkloadSpecSchema,
  type ImagePullStatusSchema,
} from '@cloudless/api';
import { NOW_MS } from '../testing/run-cli.js';
import { formatImagePulls } from './container-text.js';
import { getSpecFields } from './spec-view.js';

/** Returns the fields of a spec that have a value. */
function listFields(spec: MessageInitShape<typeof WorkloadSpecSchema>): object {
  return Object.fromEntries(
    getSpecFields(create(WorkloadSpecSchema, spec)).filter(([, text]) => text !== ''),
  );
}

describe('getSpecFields', () => {
  it('returns no container fields for a process', () => {
    expect(listFields({ command: ['a'], security: {}, network: {}, imagePull: {} })).toEqual({
      Command: 'a',
    });
  });

  it('returns every container setting of the spec as text', () => {
    expect(
      listFields({
        image: 'nginx',
        imagePull: { policy: Policy.ALWAYS },
        ports: [{ name: 'http', containerPort: 80, hostPort: 8080 }],
        network: {
          hostname: 'a',
          dnsServers: ['::1', '10.0.0.1'],
          extraHosts: [{ ip: '::2', hostnames: ['db', 'cache'] }],
          egress: {
            allowed: [
              {
                destination: { case: 'cidr', value: '10.0.0.0/8' },
                ports: [{ port: 5432 }, { protocol: Protocol.UDP, port: 50, endPort: 60 }],
              },
              { destination: { case: 'service', value: 'shop/*' } },
            ],
          },
        },
        resources: { limits: { memoryBytes: 64n << 20n, pids: 50 } },
        volumes: [
          { mountPath: '/data', source: { case: 'named', value: { name: 'data' } } },
          { mountPath: '/tmp', source: { case: 'emptyDir', value: {} } },
          {
            mountPath: '/run',
            source: {
              case: 'emptyDir',
              value: { medium: Medium.MEMORY, sizeLimitBytes: 1n << 20n },
            },
          },
          {
            mountPath: '/www',
            readOnly: true,
            source: { case: 'hostPath', value: { path: '/srv' } },
          },
        ],
        security: {
          runAsUser: 1000n,
          runAsGroup: 5n,
          runAsNonRoot: true,
          readOnlyRootFilesystem: true,
          privileged: true,
          capabilitiesAdd: ['KILL', 'BPF'],
          capabilitiesDrop: ['ALL'],
          noNewPrivileges: false,
          runtimeClass: 'runsc',
          seccompProfile: 'Unconfined',
          apparmorProfile: 'localhost/web',
          selinuxOptions: '::a_t:',
        },
      }),
    ).toEqual({
      Image: 'nginx, pulled always',
      Ports: 'http=80 (node 8080)',
      Network: 'host name a, DNS ::1 10.0.0.1, db cache at ::2',
      Egress: '10.0.0.0/8 ports 5432/tcp and 50-60/udp, service shop/*',
      Limits: 'memory 64Mi, processes 50',
      Volumes: 'data:/data, /tmp (empty), /run (in memory, 1Mi), /srv:/www:ro',
      Security:
        'user 1000:5, non-root, read-only, privileged, adds KILL BPF, drops ALL, seccomp Unconfined, AppArmor localhost/web, SELinux ::a_t:, new privileges allowed, runtime class runsc',
    });
    expect(
      listFields({
        image: 'a',
        imagePull: { platform: 'linux/arm64' },
        init: false,
        shmSizeBytes: 1n << 30n,
        ulimits: [
          { name: 'core' },
          { name: 'nofile', soft: 5n, hard: 6n },
          { name: 'memlock', soft: -1n },
        ],
        sysctls: { 'net.core.somaxconn': '5', 'kernel.sem': '1 2' },
        devices: [
          { hostPath: '/dev/fuse' },
          { hostPath: '/dev/a', containerPath: '/dev/b', permissions: 'r' },
        ],
        security: { user: 'nginx', runAsGroup: 5n, supplementalGroups: [7n, 8n], fsGroup: 0n },
      }),
    ).toEqual({
      Image: 'a, for linux/arm64',
      Security: 'user nginx:5, groups 7 8, fs group 0',
      Container:
        'no init process, /dev/shm 1Gi, core=0 nofile=5:6 memlock=unlimited, kernel.sem=1 2, net.core.somaxconn=5',
      Devices: '/dev/fuse, /dev/a:/dev/b:r',
    });
    expect(listFields({ image: 'a', network: { egress: {} } })).toEqual({
      Image: 'a',
      Egress: 'no destination',
    });
    expect(listFields({ image: 'a', init: true })).toEqual({
      Image: 'a',
      Container: 'an init process',
    });
    expect(
      listFields({
        image: 'a',
        imagePull: { policy: Policy.NEVER },
        network: { hostNetwork: true },
      }),
    ).toEqual({
      Image: 'a, never pulled',
      Network: 'host network',
    });
  });
});

describe('formatImagePulls', () => {
  it.each<{ pull: MessageInitShape<typeof ImagePullStatusSchema> | undefined; lines: string[] }>([
    { pull: undefined, lines: [] },
    {
      pull: {
        image: 'nginx',
        phase: PullPhase.PULLING,
        startedAt: timestampFromMs(NOW_MS - 12_000),
      },
      lines: ['web-1: pulling nginx, for 12s'],
    },
    {
      pull: {
        image: 'nginx',
        phase: PullPhase.PULLED,
        took: durationFromMs(2_000),
        sizeBytes: 12n << 20n,
      },
      lines: ['web-1: pulled nginx in 2s, 12Mi'],
    },
    {
      pull: { image: 'nginx', phase: PullPhase.PULLED, took: durationFromMs(480) },
      lines: ['web-1: pulled nginx in 480ms'],
    },
    {
      pull: {
        image: 'nginx',
        phase: PullPhase.FAILED,
        took: durationFromMs(10),
        reason: 'not found',
      },
      lines: ['web-1: could not pull nginx: not found'],
    },
  ])('returns the lines $lines for the status of an image pull', ({ pull, lines }) => {
    const replica = create(ReplicaStatusSchema, {
      id: 'web-1',
      ...definedFields({ imagePull: pull }),
    });
    expect(formatImagePulls([replica], NOW_MS)).toEqual(lines);
  });
});
