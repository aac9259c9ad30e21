import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  ImagePull_Policy as Pull,
  RestartPolicy_Policy as Restart,
  type Workload,
} from '@cloudless/api';
import { QUICK, type RealCluster } from './support/cluster.js';
import {
  listContainers,
  describeContainers,
  fetchText,
  startContainerCluster,
} from './support/containers.js';
import { ForeignPod } from './support/foreign-pod.js';
import { OwnContainers } from './support/own-containers.js';
import { findBundle, runToEnd } from './support/processes.js';

/** Prints increasing numbers. Exits with 42 when the file /tmp/end exists in the container. */
const COUNTER = [
  'sh',
  '-c',
  'n=0; while [ ! -e /tmp/end ]; do n=$((n+1)); echo $n; sleep 0.02; done; exit 42',
];
/** Time limit for the removal of all resources of a deleted workload. */
const REMOVED_WITHIN_MS = 60_000;
/** Kinds of the resources of a pod, as in {@link OwnContainers.listResources}. */
const KINDS = ['sandbox', 'container', 'mount', 'interface', 'cgroup', 'process', 'address'];

describeContainers('an agent with containers', () => {
  let own: OwnContainers;
  let cluster: RealCluster;
  let foreign: ForeignPod;
  beforeAll(async () => {
    own = await OwnContainers.install();
    foreign = await ForeignPod.start(own.socket);
    cluster = await startContainerCluster(['zone-a', 'zone-b'], own.socket);
  });
  afterAll(async () => {
    try {
      await cluster?.stop();
    } finally {
      await own?.remove();
    }
  });

  const create = async (name: string, spec: object): Promise<Workload> => {
    // the shell and sleep ignore SIGTERM as process 1, so a grace period would only cost time
    await cluster.client.createWorkload({
      name,
      spec: { ...QUICK, terminationGracePeriod: { seconds: 0n }, ...spec },
    });
    return cluster.waitUntilSettled(name);
  };
  const remove = async (name: string): Promise<void> => {
    await cluster.client.deleteWorkload({ name });
    await cluster.waitUntilDeleted(name);
  };
  const waitUntilFailed = (name: string, pattern: RegExp): Promise<Workload> =>
    cluster.waitForWorkload(name, ({ status }) =>
      status!.replicas.some(({ reason, lastEndReason }) =>
        pattern.test(`${reason} ${lastEndReason}`),
      ),
    );

  /**
   * Waits until no resource and no file exists that did not exist before, at most
   * {@link REMOVED_WITHIN_MS}.
   * @param machine - Resources that existed before.
   * @param files - Files that existed before. Default: files are not compared.
   * @returns The resources and files that are left.
   */
  const listLeftovers = async (
    machine: readonly string[],
    files?: readonly string[],
  ): Promise<readonly string[]> => {
    const deadline = performance.now() + REMOVED_WITHIN_MS;
    for (;;) {
      const leftovers = [
        ...(await own.listResources()).filter((line) => !machine.includes(line)),
        ...(files === undefined ? [] : listFiles(cluster).filter((file) => !files.includes(file))),
      ];
      if (leftovers.length === 0 || performance.now() > deadline) return leftovers;
    }
  };

  it('removes all resources of a deleted workload, and none of other owners', async () => {
    const volumes = [
      { name: 'scratch', mountPath: '/scratch', source: { case: 'emptyDir', value: {} } },
    ];
    const spec = {
      image: 'nginx:alpine',
      replicas: 4,
      ports: [{ name: 'http', containerPort: 80 }],
      volumes,
    };
    const machine = await own.listResources();
    await create('first', spec);
    await remove('first');
    expect(await listLeftovers(machine)).toEqual([]);
    // agents create some directories once, which stay after the first workload
    const files = listFiles(cluster);
    const workload = await create('brief', spec);
    for (const { ip } of await listContainers(cluster, workload))
      expect(await fetchText(`http://${ip}/`)).toContain('nginx');
    const during = (await own.listResources()).filter((line) => !machine.includes(line));
    const kindsOfFour = KINDS.filter(
      (kind) => during.filter((line) => line.startsWith(`${kind} `)).length >= 4,
    );
    expect({
      kindsOfFour,
      logs: listFiles(cluster).filter((file) => file.includes('logs/')).length >= 4,
    }).toEqual({
      kindsOfFour: KINDS,
      logs: true,
    });
    await remove('brief');
    expect(await listLeftovers(machine, files)).toEqual([]);
    await foreign.expectUntouched();
  });

  it('starts cached images without a registry, and repeats failed pulls until the registry returns', async () => {
    await create('cached', { image: 'cloudless/test:1' });
    await remove('cached');
    own.kill('registry');
    await create('cached', { image: 'cloudless/test:1', replicas: 2 });
    await cluster.client.createWorkload({
      name: 'always',
      spec: { ...QUICK, image: 'cloudless/test:1', imagePull: { policy: Pull.ALWAYS } },
    });
    const { status } = await waitUntilFailed('always', /cloudless\/test:1.*connection refused/);
    expect(status!.readyReplicas).toBe(0);
    const { events } = await cluster.client.listEvents({ workload: 'always' });
    expect(events.find(({ reason }) => reason === 'ImagePullFailed')?.message).toContain(
      own.registry,
    );
    expect(
      (await cluster.waitUntilSettled('cached')).status!.replicas.every(
        ({ restarts }) => restarts === 0,
      ),
    ).toBe(true);
    await own.start();
    await cluster.waitUntilSettled('always');
    await remove('always');
    await remove('cached');
  });

  it('adopts running containers with their logs and exit codes after containerd was killed', async () => {
    // on a slow machine the restart of the agent may take longer than its lease; a long lost_after
    // keeps the replicas
    const patient = {
      image: 'busybox:1',
      command: COUNTER,
      disconnect: { lostAfter: { seconds: 100n } },
    };
    const before = await create('kept', { ...patient, replicas: 2 });
    const ending = await create('ending', { ...patient, restart: { policy: Restart.NEVER } });
    const kept = await listContainers(cluster, before);
    const [last] = await listContainers(cluster, ending);
    const logs = kept.map(({ containerId }) => readNumbers(containerId, 100));
    own.kill('containerd');
    await cluster.requireAgent('agent-1').kill('SIGKILL');
    await endCounter(last!.pid);
    await own.start();
    await cluster.startAgent('agent-1', 'zone-a');
    const exited = await cluster.waitForWorkload('ending', ({ status }) =>
      status!.replicas.some(({ lastExitCode }) => lastExitCode === 42),
    );
    expect(exited.status!.replicas[0]).toMatchObject({ restarts: 0 });
    const after = await cluster.waitUntilSettled('kept');
    expect(getIdentity(after)).toEqual(getIdentity(before));
    expect((await listContainers(cluster, after)).map(({ pid }) => pid)).toEqual(
      kept.map(({ pid }) => pid),
    );
    for (const numbers of await Promise.all(logs))
      expect(numbers).toEqual(numbers.map((_, index) => index + 1));
    await foreign.expectUntouched();
    await remove('kept');
    await remove('ending');
  });

  it('removes only its own containers when it is stopped and reset', async () => {
    await create('last', { image: 'busybox:1', command: ['sleep', '1000'], replicas: 2 });
    await cluster.requireAgent('agent-1').kill('SIGTERM'); // --stop-workloads-on-exit ends the containers
    await cluster.requireAgent('agent-2').kill('SIGTERM');
    expect((await own.listResources()).filter((line) => line.startsWith('sandbox'))).toEqual([
      `sandbox ${foreign.sandboxId}`,
    ]);
    for (const name of ['agent-1', 'agent-2']) {
      const args = [findBundle('agent'), 'reset', '--data-dir', join(cluster.directory, name)];
      expect(await runToEnd(process.execPath, args)).toMatchObject({ code: 0 });
    }
    await foreign.expectUntouched();
  });

  /** Follows the log of a container through the coordinator until it has `count` numbers. */
  async function readNumbers(containerId: string, count: number): Promise<readonly number[]> {
    const ending = new AbortController();
    const numbers: number[] = [];
    for await (const { line, sequence } of cluster.agentClient.streamLogs(
      { containerId, follow: true },
      { signal: ending.signal },
    )) {
      if (sequence > 0n) numbers.push(Number(line));
      if (numbers.length === count) break;
    }
    ending.abort();
    return numbers;
  }
});

/** Returns the fields of all replicas that would change with another container. */
function getIdentity({ status }: Workload): unknown {
  return status!.replicas.map(({ id, nodeId, containerId, restarts }) => ({
    id,
    nodeId,
    containerId,
    restarts,
  }));
}

/** Lists the files of the agents. */
function listFiles({ directory, agents }: RealCluster): readonly string[] {
  // The exit code of find is ignored, because files may disappear during the search.
  const { stdout } = spawnSync('find', [...agents.keys()], { cwd: directory, encoding: 'utf8' });
  return stdout.trim().split('\n');
}

/** Makes the counting program exit, and waits until its process has ended. Needs no agent. */
async function endCounter(pid: number): Promise<void> {
  writeFileSync(`/proc/${pid}/root/tmp/end`, '');
  while (existsSync(`/proc/${pid}`)) await new Promise((resolve) => setImmediate(resolve));
}
