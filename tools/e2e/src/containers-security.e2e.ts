import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toJsonString } from '@bufbuild/protobuf';
import { ConnectError } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  ImagePull_Policy,
  ListEventsResponseSchema,
  ListWorkloadsResponseSchema,
  PolicyRule_Type,
  RolloutStatus_Phase,
  createPolicyClient,
  createSecretsClient,
  readErrorDetails,
  type ReplicaStatus,
  type SecretsClient,
  type Workload,
} from '@cloudless/api';
import { QUICK, type RealCluster } from './support/cluster.js';
import {
  SOCKET,
  listContainers,
  describeContainers,
  startContainerCluster,
  stopContainerCluster,
} from './support/containers.js';
import { PrivateRegistry } from './support/private-registry.js';
import { SecretScan, listProcessTree } from './support/secret-scan.js';

// Process 1 ignores SIGTERM unless it installs a handler; a zero grace period avoids the wait.
const SLEEPER = {
  ...QUICK,
  image: 'busybox:1',
  command: ['sleep', '1000'],
  terminationGracePeriod: { seconds: 0n },
};
const VOLUME = { name: 'data', mountPath: '/data' };
const emptyDir = { ...VOLUME, source: { case: 'emptyDir' as const, value: {} } };
const named = { ...VOLUME, source: { case: 'named' as const, value: { name: 'data' } } };
const aHostPath = (path: string) => ({
  ...VOLUME,
  readOnly: true,
  source: { case: 'hostPath' as const, value: { path } },
});

describeContainers('an agent with containers', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await startContainerCluster(['zone-a']);
  });
  afterAll(() => stopContainerCluster(cluster));

  const create = async (name: string, spec: object): Promise<ReplicaStatus> => {
    await cluster.client.createWorkload({ name, spec: { ...SLEEPER, ...spec } });
    return (await cluster.waitUntilSettled(name)).status!.replicas[0]!;
  };
  const remove = async (name: string): Promise<void> => {
    await cluster.client.deleteWorkload({ name });
    await cluster.waitUntilDeleted(name);
  };
  /**
   * Runs a shell command in the container.
   * @returns Output of both streams and exit code.
   */
  const runInside = async (
    name: string,
    script: string,
  ): Promise<{ readonly out: string; readonly code: number }> => {
    const { stdout, stderr, exitCode } = await cluster.agentClient.execCommand({
      name,
      command: ['sh', '-c', script],
    });
    return { out: (stdout + stderr).trim(), code: exitCode };
  };
  /** Returns a line of /proc/pid/status of the main process; process 1 is the init process. */
  const readKernelStatus = async (name: string, key: string): Promise<string> =>
    (
      await runInside(
        name,
        `sed -n 's/^${key}:[[:space:]]*//p' "$(grep -l '^PPid:.0$' /proc/[0-9]*/status | grep -v /1/ | sort -t / -k 3n | head -n 1)"`,
      )
    ).out;
  const waitUntilPending = (name: string, text: string): Promise<Workload> =>
    cluster.waitForWorkload(name, ({ status }) => status!.reason.includes(text));

  it('gives a container only two capabilities, no new privileges and seccomp by default', async () => {
    await create('plain', {});
    expect(await readKernelStatus('plain', 'NoNewPrivs')).toBe('1');
    expect(await readKernelStatus('plain', 'Seccomp')).toBe('2');
    const bounding = BigInt(`0x${await readKernelStatus('plain', 'CapBnd')}`);
    const granted = Object.entries(CAPABILITIES).filter(
      ([, bit]) => (bounding >> BigInt(bit)) % 2n === 1n,
    );
    expect(granted.map(([name]) => name)).toEqual(['CHOWN', 'NET_BIND_SERVICE']);
    expect(
      (
        await runInside(
          'plain',
          'cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null',
        )
      ).out,
    ).toBe('4096');
    await remove('plain');
  });

  it('applies each field of a security context', async () => {
    const security = {
      runAsNonRoot: true,
      runAsUser: 1000n,
      runAsGroup: 2000n,
      readOnlyRootFilesystem: true,
      capabilitiesDrop: ['ALL'],
      capabilitiesAdd: ['NET_BIND_SERVICE'],
    };
    await create('strict', { security, volumes: [emptyDir], resources: { limits: { pids: 77 } } });
    expect(await readKernelStatus('strict', 'Uid')).toMatch(/^1000\s+1000\s+1000\s+1000$/);
    expect(await readKernelStatus('strict', 'Gid')).toMatch(/^2000\s+2000\s+2000\s+2000$/);
    expect(await readKernelStatus('strict', 'CapBnd')).toBe(
      (1n << BigInt(CAPABILITIES.NET_BIND_SERVICE)).toString(16).padStart(16, '0'),
    );
    expect(await runInside('strict', 'touch /here')).toMatchObject({
      code: 1,
      out: expect.stringContaining('Read-only file system') as string,
    });
    expect(await runInside('strict', 'echo kept > /data/file && cat /data/file')).toEqual({
      code: 0,
      out: 'kept',
    });
    expect(
      (
        await runInside(
          'strict',
          'cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null',
        )
      ).out,
    ).toBe('77');
    await remove('strict');
  });

  it('refuses an image that runs as root when run_as_non_root is set', async () => {
    await cluster.client.createWorkload({
      name: 'root',
      spec: { ...SLEEPER, security: { runAsNonRoot: true } },
    });
    const { status } = await cluster.waitForWorkload('root', (workload) =>
      workload.status!.replicas.some(({ reason, lastEndReason }) =>
        /non.?root/i.test(reason + lastEndReason),
      ),
    );
    expect(status!.readyReplicas).toBe(0);
    await remove('root');
  });

  it.each([
    {
      name: 'an AppArmor profile',
      spec: { security: { apparmorProfile: 'localhost/mine' } },
      capability: 'security.apparmor',
    },
    {
      name: 'SELinux options',
      spec: { security: { selinuxOptions: '::container_t:s0' } },
      capability: 'security.selinux',
    },
    {
      name: 'privileged mode',
      spec: { security: { privileged: true } },
      capability: 'security.privileged',
    },
    {
      name: 'a host path',
      spec: { volumes: [aHostPath('/srv')] },
      capability: 'volumes.hostpath',
      reason: 'cannot mount host paths',
    },
    {
      name: 'another runtime class',
      spec: { security: { runtimeClass: 'kata' } },
      capability: 'runtime-class.kata',
    },
  ])(
    'keeps a workload with $name pending when no node has the capability',
    async ({ spec, capability, reason = `lacks the capability ${capability}` }) => {
      const name = capability.replace('.', '-');
      // Policies of a new cluster deny privileged containers.
      if ('privileged' in (spec.security ?? {})) await cluster.exemptFromPolicies(name);
      await cluster.client.createWorkload({ name, spec: { ...SLEEPER, ...spec } });
      const { status } = await waitUntilPending(name, reason);
      expect(status!.reason).toContain('no node fits');
      await remove(name);
    },
  );

  it('mounts only host paths that the agent allows', async () => {
    await cluster.startAgent('agent-2', 'zone-b', ['--allow-host-path', cluster.directory]);
    const { nodeId } = await create('hosted', {
      volumes: [aHostPath(`${cluster.directory}/coordinator`)],
    });
    expect(nodeId).toBe('agent-2');
    expect((await runInside('hosted', 'ls /data')).out).not.toBe('');
    expect(await runInside('hosted', 'touch /data/file')).toMatchObject({ code: 1 });
    await cluster.client.createWorkload({
      name: 'elsewhere',
      spec: { ...SLEEPER, volumes: [aHostPath('/etc')] },
    });
    await cluster.waitForWorkload('elsewhere', ({ status }) =>
      status!.replicas.some(({ reason, lastEndReason }) =>
        `${reason}${lastEndReason}`.includes('/etc'),
      ),
    );
    await remove('hosted');
    await remove('elsewhere');
    await cluster.requireAgent('agent-2').kill('SIGTERM');
  });

  describe('with a registry that needs a password', () => {
    const account = { username: 'puller', password: randomBytes(24).toString('base64url') };
    const auth = Buffer.from(`${account.username}:${account.password}`).toString('base64');
    const audiences = ['workload/*'];
    let registry: PrivateRegistry;
    let secrets: SecretsClient;
    beforeAll(async () => {
      registry = await PrivateRegistry.start(account, SOCKET);
      secrets = createSecretsClient(createGrpcTransport({ baseUrl: cluster.url }));
    });
    afterAll(() => registry.stop());

    const createPrivate = (name: string, secret: string) =>
      cluster.client.createWorkload({
        name,
        spec: {
          ...SLEEPER,
          image: `${registry.address}/cloudless/test:1`,
          // With another policy an image that is on the node needs no pull.
          imagePull: { policy: ImagePull_Policy.ALWAYS, secret },
        },
      });
    const waitUntilRefused = (name: string): Promise<Workload> =>
      cluster.waitForWorkload(name, ({ status }) =>
        status!.replicas.some(({ imagePull }) => UNAUTHORIZED.test(imagePull?.reason ?? '')),
      );

    it('pulls an image only with the credentials of image_pull.secret, which appear nowhere', async () => {
      await createPrivate('public', '');
      const { status } = await waitUntilRefused('public');
      expect(status!.readyReplicas).toBe(0);

      const wrong = toBytes({ username: account.username, password: 'wrong' });
      await secrets.createSecret({ name: 'account', audiences, data: wrong });
      await createPrivate('private', 'account');
      await waitUntilRefused('private');
      // Every pull uses the newest values.
      await secrets.updateSecret({ name: 'account', data: toBytes({ ...account }) });
      await cluster.waitUntilSettled('private');

      const config = JSON.stringify({ auths: { [registry.address]: { auth } } });
      const data = toBytes({ '.dockerconfigjson': config });
      await secrets.createSecret({ name: 'docker', audiences, data });
      await createPrivate('docker', 'docker');
      await cluster.waitUntilSettled('docker');

      const scan = new SecretScan();
      scan.addValue('password', Buffer.from(account.password));
      scan.addValue('credentials', Buffer.from(auth));
      for (const path of [cluster.directory, registry.runtimeLogs]) scan.addDirectory(path);
      const programs = [cluster.coordinatorProcess, ...cluster.agents.values()];
      for (const { lines, pid } of programs) {
        scan.addText(`log of process ${pid}`, lines.join('\n'));
        scan.addProcesses(listProcessTree(pid));
      }
      const events = await cluster.client.listEvents({ pageSize: 1_000 });
      scan.addText('events', toJsonString(ListEventsResponseSchema, events));
      const workloads = await cluster.client.listWorkloads({});
      scan.addText('workloads', toJsonString(ListWorkloadsResponseSchema, workloads));
      expect(scan.findings).toEqual([]);
      // The scan finds what is there.
      scan.addText('a leak', `${account.password} ${config}`);
      expect(new Set(scan.findings.map(({ secret }) => secret))).toEqual(
        new Set(['password', 'credentials']),
      );
      expect(events.events.map(({ reason }) => reason)).toContain('ImagePullFailed');
      for (const name of ['public', 'private', 'docker']) await remove(name);
    });
  });

  describe('with volumes', () => {
    it('keeps an empty directory across a restart in place, and removes it with its replica', async () => {
      const before = await create('scratch', { volumes: [emptyDir] });
      await runInside('scratch', 'echo kept > /data/file');
      const [container] = await listContainers(cluster, await cluster.waitUntilSettled('scratch'));
      process.kill(container!.pid, 'SIGKILL');
      await cluster.waitForWorkload('scratch', ({ status }) =>
        status!.replicas.some(({ restarts, ready }) => restarts === 1 && ready),
      );
      expect(await runInside('scratch', 'cat /data/file')).toEqual({ code: 0, out: 'kept' });
      await cluster.client.restartRollout({ name: 'scratch' });
      const { status } = await cluster.waitForWorkload('scratch', (workload) =>
        isRolledOut(workload, before.id),
      );
      expect(status!.replicas[0]!.id).not.toBe(before.id);
      expect((await runInside('scratch', 'ls -A /data')).out).toBe('');
      await remove('scratch');
    });

    it('keeps a named volume for each workload, also after the workload was deleted', async () => {
      await create('first', { volumes: [named] });
      await create('second', { volumes: [named] });
      await runInside('first', 'echo first > /data/file');
      expect((await runInside('second', 'ls -A /data')).out).toBe('');
      await remove('first');
      await create('first', { volumes: [named] });
      expect((await runInside('first', 'cat /data/file')).out).toBe('first');
      await remove('first');
      await remove('second');
    });
  });

  describe('with limited destinations', () => {
    const WELCOME = /Welcome to nginx!/;
    const toService = (name: string) => ({
      destination: { case: 'service' as const, value: `default/${name}` },
      ports: [{ port: 80 }],
    });
    const toNetwork = (...services: readonly string[]) => ({
      egress: { allowed: services.map(toService) },
    });
    /** Creates a web server with a service of the same name. */
    const createWebServer = async (name: string): Promise<void> => {
      const ports = [{ name: 'http', containerPort: 80 }];
      const expose = [{ name: 'http', port: 80 }];
      const spec = { ...QUICK, image: 'nginx:alpine', ports, expose };
      await cluster.client.createWorkload({ name, spec });
      await cluster.waitUntilSettled(name);
    };
    /**
     * Runs a request in a container. The resolver of the static wget ends with a fault, so nslookup
     * asks the DNS server.
     * @param target - Name of a service, or `address:port`.
     */
    const fetchInside = async (name: string, target: string): Promise<string> => {
      const resolve = `nslookup -type=a ${target}.default.svc.cloudless.internal | sed -n 's/^Address: //p'`;
      const address = target.includes(':') ? target : `$(${resolve})`;
      return (await runInside(name, `timeout 10 wget -q -O - "http://${address}/"`)).out;
    };
    /** Repeats a request until its output matches; the limit is that of the test. */
    const fetchUntil = async (name: string, target: string, expected: RegExp): Promise<void> => {
      while (!expected.test(await fetchInside(name, target)))
        await new Promise((resolve) => setTimeout(resolve, 100));
    };

    beforeAll(async () => {
      await cluster.requireAgent('agent-1').kill('SIGTERM');
      await cluster.startAgent('agent-1', 'zone-a', ['--network', 'on']);
    });

    it('reaches the services of its spec, also one that is created later, and nothing else', async () => {
      const nodeServer = createServer((_, response) => response.end('the node'));
      await new Promise<void>((resolve) => nodeServer.listen(0, '0.0.0.0', resolve));
      try {
        for (const name of ['first', 'second']) await createWebServer(name);
        const gateway = (await runInside('first', `ip route | sed -n 's/^default via //p'`)).out;
        const { port } = nodeServer.address() as AddressInfo;
        const node = `${gateway.split(' ')[0]}:${port}`;
        await fetchUntil('first', 'second', WELCOME);
        expect(await fetchInside('first', node)).toBe('the node');

        const limited = await create('limited', { network: toNetwork('first', 'later') });
        await fetchUntil('limited', 'first', WELCOME);
        for (const target of ['second', node])
          expect(await fetchInside('limited', target)).toMatch(/refused/);

        await createWebServer('later');
        await fetchUntil('limited', 'later', WELCOME);
        const [replica] = (await cluster.waitUntilSettled('limited')).status!.replicas;
        expect(replica).toMatchObject({ containerId: limited.containerId, restarts: 0 });

        const network = toNetwork('first', 'second');
        await cluster.client.updateWorkload({ name: 'limited', spec: { network } });
        await cluster.waitForWorkload('limited', (workload) => isRolledOut(workload, limited.id));
        await fetchUntil('limited', 'second', WELCOME);
        expect(await fetchInside('limited', node)).toMatch(/refused/);
        for (const name of ['limited', 'first', 'second', 'later']) await remove(name);
      } finally {
        nodeServer.close();
      }
    });

    it('denies a workload without an egress limit by a policy of type EGRESS_DESTINATION', async () => {
      const policies = createPolicyClient(createGrpcTransport({ baseUrl: cluster.url }));
      const config = {
        case: 'egressDestination' as const,
        value: { allowed: [{ destination: toService('first').destination }] },
      };
      const type = PolicyRule_Type.EGRESS_DESTINATION;
      await policies.createPolicy({
        name: 'destinations',
        spec: { namespace: 'default', rules: [{ name: 'destinations', type, config }] },
      });
      const created = (spec: object): Promise<string | undefined> =>
        cluster.client.createWorkload({ name: 'ruled', spec: { ...SLEEPER, ...spec } }).then(
          () => 'created',
          (reason: unknown) => readErrorDetails(ConnectError.from(reason)).reason,
        );
      expect(await created({})).toBe('POLICY_DENIED');
      expect(await created({ network: toNetwork('second') })).toBe('POLICY_DENIED');
      expect(await created({ network: toNetwork('first') })).toBe('created');
      await policies.deletePolicy({ name: 'destinations' });
      await remove('ruled');
    });
  });
});

/** Error of containerd for a registry that asks for a password. */
const UNAUTHORIZED = /cloudless\/test:1 cannot be pulled: .*(\b401\b|authoriz)/s;

/** Returns the values of a secret. */
const toBytes = (values: Readonly<Record<string, string>>): Record<string, Uint8Array> =>
  Object.fromEntries(Object.entries(values).map(([key, value]) => [key, Buffer.from(value)]));

/**
 * Bits of capabilities, from include/uapi/linux/capability.h. CHOWN and NET_BIND_SERVICE are
 * granted by default; the others are dropped.
 */
const CAPABILITIES = {
  CHOWN: 0,
  NET_BIND_SERVICE: 10,
  NET_RAW: 13,
  SYS_ADMIN: 21,
  MKNOD: 27,
  AUDIT_WRITE: 29,
};

/** Returns true when the rollout has completed and the old replica is gone. */
function isRolledOut({ status }: Workload, oldReplica: string): boolean {
  return (
    status!.rollout!.phase === RolloutStatus_Phase.COMPLETED &&
    status!.readyReplicas === 1 &&
    status!.replicas.every(({ id, ready }) => id !== oldReplica && ready)
  );
}
