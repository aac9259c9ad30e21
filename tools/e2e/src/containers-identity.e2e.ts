import { X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { QUICK } from './support/cluster.js';
import { SOCKET, describeContainers } from './support/containers.js';
import { SecureCluster } from './support/secure-cluster.js';

const IDENTITY_DIR = '/var/run/cloudless/identity';
const WORKLOAD = {
  ...QUICK,
  image: 'busybox:1',
  command: ['sleep', '1000'],
  terminationGracePeriod: { seconds: 0n },
  identity: {},
};

describeContainers('a workload with an identity in containers', () => {
  let cluster: SecureCluster;
  beforeAll(async () => {
    cluster = await SecureCluster.start({
      agents: ['agent-1'],
      criSocket: SOCKET,
      agentFlags: ['--deny-processes'],
      coordinatorFlags: ['--workload-certificate-lifetime', '6s'],
    });
  });
  afterAll(() => cluster.stop());

  const create = async (name: string, spec: object = {}): Promise<string> => {
    await cluster.admin.coordinator.createWorkload({ name, spec: { ...WORKLOAD, ...spec } });
    return (await cluster.waitUntilSettled(name)).status?.replicas[0]?.id ?? '';
  };
  /** Runs a shell script in the container of a workload; returns both output streams. */
  const run = async (name: string, script: string): Promise<string> => {
    const command = ['sh', '-c', script];
    const { stdout, stderr } = await cluster.admin.coordinator.execCommand({ name, command });
    return (stdout + stderr).trim();
  };
  const remove = async (name: string): Promise<void> => {
    await cluster.admin.coordinator.deleteWorkload({ name });
    while (await isKnown(name)) await cluster.admin.coordinator.listNodes({});
  };
  const isKnown = async (name: string): Promise<boolean> =>
    (await cluster.admin.coordinator.listWorkloads({})).workloads.some(
      (workload) => workload.name === name,
    );
  const folder = (): string => join(cluster.directory, 'agent-1', 'workload-identities');
  const listMounts = (): readonly string[] =>
    readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .filter((line) => line.includes(folder()));

  it('has its certificate, its key and the roots in a private directory in memory', async () => {
    const replicaId = await create('web');
    expect(await run('web', 'echo $CLOUDLESS_IDENTITY_DIR; cd $CLOUDLESS_IDENTITY_DIR; ls')).toBe(
      [IDENTITY_DIR, 'ca.crt', 'tls.crt', 'tls.key'].join('\n'),
    );
    const chain = await run('web', `cat ${IDENTITY_DIR}/tls.crt`);
    const certificate = new X509Certificate(chain);
    expect(certificate.subjectAltName).toBe('URI:spiffe://cloudless/workload/default.web');
    expect(chain.match(/BEGIN CERTIFICATE/g)).toHaveLength(3);
    expect(await run('web', `grep -c BEGIN.PRIVATE.KEY ${IDENTITY_DIR}/tls.key`)).toBe('1');
    expect(await run('web', `cat ${IDENTITY_DIR}/ca.crt`)).toBe(
      readFileSync(join(cluster.identityDir, 'ca', '1', 'root.crt'), 'utf8').trim(),
    );
    expect(await run('web', `stat -f -c %T ${IDENTITY_DIR}; touch ${IDENTITY_DIR}/x`)).toMatch(
      /^tmpfs\n.*Read-only file system$/,
    );
    expect(readdirSync(folder())).toEqual([replicaId]);
    expect(listMounts()).toHaveLength(1);
    await remove('web');
    // The node forgets the replica after the coordinator knows that it has stopped.
    while (readdirSync(folder()).length > 0) await cluster.admin.coordinator.listNodes({});
    expect(listMounts()).toEqual([]);
  });

  it('cannot read the key of another replica, also as root and from its own processes', async () => {
    await create('mine');
    await create('other');
    const keyOf = (name: string): Promise<string> =>
      run(name, `sed -n 2,3p ${IDENTITY_DIR}/tls.key`);
    const key = await keyOf('other');
    const [line = ''] = key.split('\n');
    expect(await keyOf('mine')).not.toContain(line);
    // Everything that the container can reach: files, mounts, and the roots of its processes.
    const search = `grep -rlF '${line}' /var /run /tmp /dev/shm /etc /proc/*/root/var/run /proc/*/environ 2>/dev/null; echo end`;
    expect(await run('mine', search)).toBe('end');
    expect(await run('mine', 'mount | grep -c cloudless/identity')).toBe('1');
    expect(await run('mine', `ls ${folder()} 2>&1; ls /proc/1/root${folder()} 2>&1`)).toMatch(
      /^ls: .*No such file or directory\nls: .*(No such file or directory|Permission denied)$/,
    );
    for (const name of ['mine', 'other']) await remove(name);
  });

  it('lets only the user of the spec read the key', async () => {
    await create('user', { security: { runAsUser: 1000n } });
    expect(
      await run(
        'user',
        `id -u; stat -L -c '%a %u' ${IDENTITY_DIR}/tls.key; head -c 27 ${IDENTITY_DIR}/tls.key`,
      ),
    ).toBe('1000\n400 1000\n-----BEGIN PRIVATE KEY-----');
    await remove('user');
  });

  it('gets new files without a restart, also after a restart of the agent, which removes leftovers', async () => {
    const replicaId = await create('long');
    const serialOf = async (): Promise<string> =>
      new X509Certificate(await run('long', `cat ${IDENTITY_DIR}/tls.crt`)).serialNumber;
    const waitForOther = async (serial: string): Promise<string> => {
      for (;;) {
        // the replica may be listed as not running for a moment after its agent has returned
        const now = await serialOf().catch(() => serial);
        if (now !== serial) return now;
      }
    };
    const second = await waitForOther(await serialOf());
    const agent = cluster.requireAgent('agent-1');
    await agent.kill('SIGKILL');
    const leftover = join(folder(), 'gone-1');
    mkdirSync(leftover);
    await cluster.startAgent('agent-1');
    expect(existsSync(leftover)).toBe(false);
    await waitForOther(second);
    const { status } = await cluster.waitUntilSettled('long');
    expect(status?.replicas.map(({ id, restarts }) => [id, restarts])).toEqual([[replicaId, 0]]);
    await remove('long');
  });

  it('is refused without a container, with the reason', async () => {
    const spec = { ...WORKLOAD, image: '', command: ['sleep', '1'] };
    await expect(
      cluster.admin.coordinator.createWorkload({ name: 'process', spec }),
    ).rejects.toThrow('spec.identity: needs a container: set image');
  });
});
