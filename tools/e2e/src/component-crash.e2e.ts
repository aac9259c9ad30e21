import { createGrpcTransport } from '@connectrpc/connect-node';
import { createAgentClient, type LogEntry, type Workload } from '@cloudless/api';
import { RealCluster, SERVER_COMMAND } from './support/cluster.js';

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start();
});
afterEach(() => cluster.stop());

const listContainers = ({ status }: Workload): Record<string, string> =>
  Object.fromEntries((status?.replicas ?? []).map(({ id, containerId }) => [id, containerId]));
const countRestarts = ({ status }: Workload): number =>
  (status?.replicas ?? []).reduce((sum, { restarts }) => sum + restarts, 0);

async function createServers(replicas: number): Promise<Workload> {
  const spec = { command: SERVER_COMMAND, ports: [{ name: 'http', containerPort: 80 }], replicas };
  await cluster.client.createWorkload({ name: 'web', spec });
  return cluster.waitUntilSettled('web');
}

describe('cluster', () => {
  it('restarts a killed process in place, with the same replica and node and a new container', async () => {
    const before = await createServers(3);
    const victim = before.status!.replicas[0]!;
    const { pid } = await cluster.agentClient.getContainerStatus({
      containerId: victim.containerId,
    });
    process.kill(pid, 'SIGKILL');
    const after = await cluster.waitForWorkload('web', ({ status }) =>
      status!.replicas.some((r) => r.id === victim.id && r.restarts === 1 && r.ready),
    );
    const restartedReplica = after.status!.replicas.find(({ id }) => id === victim.id)!;
    expect(restartedReplica).toMatchObject({ nodeId: victim.nodeId, lastExitCode: 137 });
    expect(restartedReplica.containerId).not.toBe(victim.containerId);
    expect(Object.keys(listContainers(after)).sort()).toEqual(
      Object.keys(listContainers(before)).sort(),
    );
  });

  it('keeps processes and their log without a lost or repeated line when the agent is killed', async () => {
    const counter = 'let n = 0; setInterval(() => console.log(String(++n)), 2);';
    await cluster.client.createWorkload({
      name: 'web',
      spec: { command: ['node', '-e', counter], replicas: 3 },
    });
    const before = await cluster.waitUntilSettled('web');
    const watched = before.status!.replicas.find(({ nodeId }) => nodeId === 'agent-1')!;
    const { pid } = await cluster.agentClient.getContainerStatus({
      containerId: watched.containerId,
    });
    const following = new AbortController();
    const lines: LogEntry[] = [];
    let restarted = false;
    const followed = (async () => {
      let after = Number.POSITIVE_INFINITY;
      for await (const entry of cluster.client.streamLogs(
        { replicaId: watched.id, follow: true },
        { signal: following.signal },
      )) {
        if (entry.sequence > 0n) lines.push(entry);
        if (restarted && after === Number.POSITIVE_INFINITY) after = lines.length + 200;
        if (lines.length > after) return;
      }
    })();
    await cluster.requireAgent('agent-1').kill('SIGKILL');
    const lineCountBefore = lines.length;
    await cluster.startAgent('agent-1', 'zone-a');
    restarted = true;
    await followed;
    following.abort();
    expect(lines.length).toBeGreaterThan(lineCountBefore + 200);
    expect(lines.map(({ line }) => Number(line))).toEqual(lines.map((_, index) => index + 1));
    expect(lines.map(({ sequence }) => Number(sequence))).toEqual(
      lines.map((_, index) => index + 1),
    );
    const after = await cluster.waitUntilSettled('web');
    expect(listContainers(after)).toEqual(listContainers(before));
    expect(countRestarts(after)).toBe(0);
    expect(
      (await cluster.agentClient.getContainerStatus({ containerId: watched.containerId })).pid,
    ).toBe(pid);
  });

  it('keeps acknowledged writes and restarts nothing when the coordinator is killed', async () => {
    const before = await createServers(5);
    await cluster.client.createWorkload({
      name: 'other',
      spec: { command: ['sleep', '1000'], replicas: 0, labels: { kept: 'yes' } },
    });
    const acknowledged = await cluster.client.scaleWorkload({ name: 'other', replicas: 2 });
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    for (const name of ['agent-1', 'agent-2', 'agent-3']) await cluster.waitUntilNodeReady(name);
    const after = await cluster.waitUntilSettled('web');
    expect(listContainers(after)).toEqual(listContainers(before));
    expect(countRestarts(after)).toBe(0);
    const other = await cluster.waitUntilSettled('other');
    expect(other).toMatchObject({
      uid: acknowledged.uid,
      generation: acknowledged.generation,
      spec: { labels: { kept: 'yes' }, replicas: 2 },
    });
  });

  it('runs commands and streams logs on the port of an agent, by a shortened container id', async () => {
    const address = await cluster.startAgent('agent-4', 'zone-d');
    const spec = { command: ['sh', '-c', 'echo up; sleep 1000'], placement: { zones: ['zone-d'] } };
    await cluster.client.createWorkload({ name: 'web', spec });
    const [replica] = (await cluster.waitUntilSettled('web')).status!.replicas;
    const agent = createAgentClient(createGrpcTransport({ baseUrl: `http://${address}` }));
    const containerId = replica!.containerId.slice(0, 12);
    const result = await agent.execCommand({
      containerId,
      command: ['sh', '-c', 'echo a; echo b >&2; exit 3'],
    });
    expect(result).toMatchObject({ stdout: 'a\n', stderr: 'b\n', exitCode: 3 });
    const lines: string[] = [];
    for await (const { line } of agent.streamLogs({ containerId })) lines.push(line);
    expect(lines).toEqual(['up']);
  });
});
