import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  ContainerStats_Source as Source,
  createAgentClient,
  type ContainerStats,
  type ContainerUse,
} from '@cloudless/api';
import { QUICK, RealCluster } from './support/cluster.js';

/** Command that computes without end in a child of the main process. */
const BUSY = ['sh', '-c', '(while :; do :; done) & wait'];
const resources = { requests: { cpuMillis: 70, memoryBytes: 1_048_576n } };

let cluster: RealCluster;
let agentUrl = '';
beforeAll(async () => {
  cluster = await RealCluster.start([]);
  agentUrl = `http://${await cluster.startAgent('agent-1', 'zone-a', ['--ops-listen', '127.0.0.1:0'])}`;
  await cluster.startAgent('agent-2', 'zone-b');
  const aPlacedSpec = (zone: string) => ({ ...QUICK, resources, placement: { zones: [zone] } });
  await cluster.client.createWorkload({
    name: 'busy',
    spec: { ...aPlacedSpec('zone-a'), command: BUSY },
  });
  await cluster.client.createWorkload({
    name: 'idle',
    spec: { ...aPlacedSpec('zone-b'), command: ['sleep', '1000'] },
  });
  await Promise.all([cluster.waitUntilSettled('busy'), cluster.waitUntilSettled('idle')]);
});
afterAll(() => cluster.stop());

/** Returns the replica id of a workload. */
const findReplica = async (name: string): Promise<string> =>
  (await cluster.client.getWorkload({ name })).status?.replicas[0]?.id ?? '';
const getCpuNanos = (stats: ContainerStats): bigint => stats.cpu?.cpuUsageNanos ?? 0n;

/** Waits until both containers have rates, which need two samples. */
async function waitForRates(): Promise<readonly ContainerUse[]> {
  for (;;) {
    const { containers } = await cluster.agentClient.listContainerStats({});
    if (containers.length === 2 && containers.every(({ cpuMillis }) => cpuMillis !== undefined))
      return containers;
  }
}

describe('resource usage of a process replica', () => {
  it('is measured on request on the ports of coordinator and agent', async () => {
    const replicaId = await findReplica('busy');
    const first = await cluster.agentClient.getContainerStats({ replicaId });
    expect(first).toMatchObject({
      namespace: 'default',
      workload: 'busy',
      nodeId: 'agent-1',
      source: Source.PROCESSES,
      problems: [],
    });
    expect(first.memory?.memoryUsageBytes).toBeGreaterThan(0n);
    let last = first;
    while (getCpuNanos(last) < getCpuNanos(first) + 50_000_000n)
      last = await cluster.agentClient.getContainerStats({ replicaId });
    expect(last.pids?.pidsCurrent).toBe(2n); // the shell and its child that computes
    const agent = createAgentClient(createGrpcTransport({ baseUrl: agentUrl }));
    const { containerId } = last;
    expect(
      getCpuNanos(await agent.getContainerStats({ containerId: containerId.slice(0, 12) })),
    ).toBeGreaterThanOrEqual(getCpuNanos(last));
    await expect(agent.getContainerStats({ replicaId: await findReplica('idle') })).rejects.toThrow(
      /not on node agent-1/,
    );
  });

  it('is listed as rates for the containers of all nodes, with requests', async () => {
    const [busy, idle] = await waitForRates();
    expect(busy).toMatchObject({
      workload: 'busy',
      nodeId: 'agent-1',
      cpuRequestMillis: 70n,
      memoryRequestBytes: 1_048_576n,
    });
    expect(idle).toMatchObject({ workload: 'idle', nodeId: 'agent-2', pidsCurrent: 1n });
    expect(busy!.cpuMillis).toBeGreaterThan(idle!.cpuMillis!);
    expect(busy!.cpuMillis).toBeLessThan(1_200n); // one thread
  });

  it('is printed by cloudlessctl top, highest first', async () => {
    await waitForRates();
    const replicas = await cluster.runCtl('top', 'replica');
    expect(replicas).toMatchObject({ code: 0, stderr: '' });
    expect(replicas.stdout).toMatch(
      /^NAMESPACE.*\ndefault +busy +\S+ +agent-1 +\d\S* +70m\/- .*\ndefault +idle +\S+ +agent-2 +\d/,
    );
    expect((await cluster.runCtl('top', 'workload', 'busy')).stdout).toMatch(
      /\ndefault +busy +1\/1 +\d\S* +70m\/- /,
    );
    const nodes = await cluster.runCtl('top', 'node');
    expect(nodes).toMatchObject({ code: 0, stderr: '' });
    expect(nodes.stdout).toMatch(/^NAME +CPU +CPU% [^]*agent-1 [^]*$/);
    expect(await cluster.runCtl('top', 'workload', 'none')).toMatchObject({ code: 3 });
  });

  it('is in the metrics of the agent only while the container runs', async () => {
    await waitForRates();
    const opsUrl = String(
      (
        await cluster
          .requireAgent('agent-1')
          .waitForLog('agent started, connecting to coordinators')
      )['opsUrl'],
    );
    const readLines = async (): Promise<readonly string[]> =>
      (await (await fetch(`${opsUrl}/metrics`)).text())
        .split('\n')
        .filter((line) => line.startsWith('cloudless_container_'));
    const lines = await readLines();
    const { id, containerId } = (await cluster.client.getWorkload({ name: 'busy' })).status!
      .replicas[0]!;
    const labels = `{namespace="default",workload="busy",replica="${id}",container="${containerId}"}`;
    const readValue = (name: string): number =>
      Number(lines.find((line) => line.startsWith(`cloudless_container_${name}{`))?.split('} ')[1]);
    expect(lines.every((line) => line.includes(labels))).toBe(true);
    expect(readValue('cpu_seconds_total')).toBeGreaterThan(0);
    expect(readValue('memory_working_set_bytes')).toBeGreaterThan(0);
    expect(readValue('pids')).toBe(2);
    await cluster.client.deleteWorkload({ name: 'busy' });
    await cluster.waitUntilDeleted('busy');
    while ((await readLines()).length > 0);
  });

  it('is listed without a node that does not answer, and the list names that node', async () => {
    await cluster.client.createWorkload({
      name: 'still',
      spec: { ...QUICK, placement: { zones: ['zone-a'] }, command: ['sleep', '1000'] },
    });
    await cluster.waitUntilSettled('still');
    const { pid } = cluster.requireAgent('agent-2');
    process.kill(pid, 'SIGSTOP');
    try {
      const { containers, silentNodes } = await cluster.agentClient.listContainerStats({});
      expect(containers.map(({ workload }) => workload)).toEqual(['still']);
      expect(silentNodes).toMatchObject([
        {
          nodeId: 'agent-2',
          reason: expect.stringMatching(/^no answer within 3 s$|not connected/),
        },
      ]);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
  });
});
