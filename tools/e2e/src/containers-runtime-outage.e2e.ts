import { Condition_Type as ConditionType, type Workload } from '@cloudless/api';
import { QUICK, type RealCluster } from './support/cluster.js';
import { listContainers, describeContainers, startContainerCluster } from './support/containers.js';
import { OwnContainers } from './support/own-containers.js';

const SLEEP = ['sleep', '3600'];
const requests = { cpuMillis: 10 }; // small requests, so that many replicas fit on a small machine

describeContainers('a node whose container runtime was killed', () => {
  let own: OwnContainers;
  let cluster: RealCluster;
  beforeAll(async () => {
    own = await OwnContainers.install();
    cluster = await startContainerCluster(['zone-a']);
    await cluster.startAgent('agent-2', 'zone-b', ['--cri-socket', own.socket]);
  });
  afterAll(async () => {
    try {
      await cluster?.stop();
    } finally {
      await own?.remove();
    }
  });

  const create = (name: string, replicas: number): Promise<unknown> => {
    // The shell and sleep ignore SIGTERM as process 1; a zero grace period avoids the wait.
    const settings = { ...QUICK, terminationGracePeriod: { seconds: 0n }, resources: { requests } };
    return cluster.client.createWorkload({
      name,
      spec: { ...settings, image: 'busybox:1', command: SLEEP, replicas },
    });
  };
  const listNodes = ({ status }: Workload): readonly string[] =>
    status!.replicas.map(({ nodeId }) => nodeId).sort();
  const waitForRuntimeCondition = async (expected: boolean): Promise<void> => {
    for (;;) {
      const { status } = await cluster.client.getNode({ nodeId: 'agent-2' });
      const condition = status?.conditions.find(
        ({ type }) => type === ConditionType.CONTAINER_RUNTIME_UNAVAILABLE,
      );
      if (condition?.status === expected) return;
    }
  };

  it('keeps running replicas and gets no new ones, until its container runtime is back', async () => {
    await create('kept', 2);
    const kept = await cluster.waitUntilSettled('kept');
    expect(listNodes(kept)).toEqual(['agent-1', 'agent-2']);
    const ids = kept.status!.replicas.map(({ id }) => id).sort();
    const victim = kept.status!.replicas.find(({ nodeId }) => nodeId === 'agent-2')!;
    const [{ pid } = { pid: 0 }] = (await listContainers(cluster, kept)).filter(
      ({ nodeId }) => nodeId === 'agent-2',
    );

    own.kill('containerd');
    await create('early', 2); // before the agent has detected the failure
    await waitForRuntimeCondition(true);
    await create('late', 4);
    expect(listNodes(await cluster.waitUntilSettled('late'))).toEqual(
      Array.from({ length: 4 }, () => 'agent-1'),
    );
    expect(listNodes(await cluster.waitUntilSettled('early'))).toEqual(['agent-1', 'agent-1']);

    process.kill(pid, 'SIGKILL');
    const broken = await cluster.waitForWorkload('kept', ({ status }) =>
      status!.replicas.some(({ ready }) => !ready),
    );
    expect(broken.status!.replicas.find(({ ready }) => !ready)).toMatchObject({
      id: victim.id,
      restarts: 0,
      reason:
        'the main process no longer exists, and the container runtime has not reported its exit',
    });

    await own.start();
    await waitForRuntimeCondition(false);
    const after = await cluster.waitForWorkload('kept', ({ status }) =>
      status!.replicas.every(
        ({ id, ready, restarts }) => ready && restarts === (id === victim.id ? 1 : 0),
      ),
    );
    expect(after.status!.replicas.map(({ id }) => id).sort()).toEqual(ids);
    await create('again', 2);
    expect(listNodes(await cluster.waitUntilSettled('again'))).toEqual(['agent-1', 'agent-2']);
  });
});
