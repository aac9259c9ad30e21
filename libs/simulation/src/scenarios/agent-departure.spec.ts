import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  Condition_Type as ConditionType,
  Disconnect_Mode as Mode,
  NodeStatus_Phase as NodePhase,
} from '@cloudless/api';
import { startCluster, createWeb } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../index.js';

const LEASE_MS = 3_000;
const GRACE_MS = 60_000;

/** Nodes of the replicas that are not ordered to stop, sorted. */
const wantedNodes = (cluster: TestCluster): readonly string[] =>
  [...cluster.state.view().replicas()]
    .filter(({ value }) => value.desiredRunning)
    .map(({ value }) => value.nodeId)
    .sort();

const wantedIds = (cluster: TestCluster): readonly string[] =>
  [...cluster.state.view().replicas()]
    .filter(({ value }) => value.desiredRunning)
    .map(({ value }) => value.id)
    .sort();

/** Reasons of the events about departures, losses and returns of a node. */
const eventsOf = (cluster: TestCluster, nodeId: string): readonly string[] =>
  [...cluster.state.view().events()]
    .filter((event) => event.nodeId === nodeId)
    .map(({ reason }) => reason)
    .filter((reason) =>
      ['AgentLeft', 'AgentReturned', 'NodeLost', 'NodeReturned', 'ReplicasLost'].includes(reason),
    );

const readNode = (cluster: TestCluster, nodeId: string) =>
  cluster.complete(() => cluster.client.getNode({ nodeId }));

async function startWeb(nodes = 2): Promise<TestCluster> {
  const cluster = await startCluster(nodes);
  await createWeb(cluster, { replicas: nodes });
  await cluster.advance(1_000);
  return cluster;
}

/** Two nodes with one EXCLUSIVE replica each, which ends 4 to 8 s after the last contact. */
async function startExclusive(): Promise<TestCluster> {
  const cluster = await startCluster(0);
  for (const nodeId of ['node-1', 'node-2'])
    await cluster.addNode(nodeId, { capabilities: ['runtime.process', 'disconnect.exclusive'] });
  const disconnect = { mode: Mode.EXCLUSIVE, stopAfter: durationFromMs(4_000) };
  await createWeb(cluster, { replicas: 2, disconnect });
  await cluster.advance(1_000);
  return cluster;
}

/** Lets the agent of `node-1` leave in good order and time pass. */
async function leave(cluster: TestCluster, thenMs: number): Promise<void> {
  cluster.agents.get('node-1')!.leave();
  await cluster.advance(thenMs);
}

describe('an agent that leaves in good order', () => {
  it('keeps its replicas when it returns within the grace, and the node shows what will happen', async () => {
    const cluster = await startWeb();
    const before = wantedIds(cluster);
    await leave(cluster, 50_000);
    const { status } = await readNode(cluster, 'node-1');
    expect(status?.phase).toBe(NodePhase.AWAY);
    expect(status?.reason).toMatch(
      /^the agent left at \d{4}-.*Z \(the agent is stopping\); its replicas continue, and are replaced unless the agent returns within 60s$/,
    );
    await cluster.reconnect('node-1');
    await cluster.advance(10_000);
    expect(wantedIds(cluster)).toEqual(before);
    expect(eventsOf(cluster, 'node-1')).toEqual(['AgentLeft', 'AgentReturned']);
    expect(cluster.state.view().node('node-1')?.value.departure).toBeUndefined();
  });

  it('is replaced when the grace ends, not before', async () => {
    const cluster = await startWeb();
    await leave(cluster, GRACE_MS - 200);
    expect(wantedNodes(cluster)).toEqual(['node-1', 'node-2']);
    await cluster.advance(600);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
    expect(eventsOf(cluster, 'node-1')).toEqual(['AgentLeft', 'NodeLost', 'ReplicasLost']);
    expect(cluster.state.view().node('node-1')?.value.departure).toBeUndefined();
  });

  it('has no grace when its replicas end with it', async () => {
    const cluster = await startWeb();
    cluster.agents.get('node-1')!.leave(false);
    await cluster.advance(LEASE_MS + 600);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
  });

  it('has the short lease again when it crashes after its return', async () => {
    const cluster = await startWeb();
    await leave(cluster, 10_000);
    await cluster.reconnect('node-1');
    await cluster.advance(500);
    cluster.agents.get('node-1')!.disconnect();
    await cluster.advance(LEASE_MS + 600);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
  });

  it('keeps its grace over a restart of the coordinator, which begins again', async () => {
    const cluster = await startWeb();
    await leave(cluster, 30_000);
    cluster.agents.get('node-2')!.sendsPings = true;
    await cluster.complete(() => cluster.restartCoordinator());
    await cluster.reconnect('node-2');
    await cluster.advance(GRACE_MS - 500);
    expect((await readNode(cluster, 'node-1')).status).toMatchObject({
      phase: NodePhase.AWAY,
      reason: expect.stringContaining('within 60s of the restart of the coordinator') as string,
    });
    expect(wantedNodes(cluster)).toEqual(['node-1', 'node-2']);
    await cluster.advance(1_000);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
  });

  it('gets no new replicas while it is away', async () => {
    const cluster = await startWeb();
    await leave(cluster, 1_000);
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 6 }));
    await cluster.advance(2_000);
    expect(wantedNodes(cluster).filter((nodeId) => nodeId === 'node-1')).toHaveLength(1);
  });

  it('has its replicas replaced at once when an operator confirms the loss', async () => {
    const cluster = await startWeb();
    await leave(cluster, 1_000);
    await cluster.complete(() => cluster.client.confirmNodeLost({ nodeId: 'node-1' }));
    await cluster.advance(500);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
  });

  it('is drained: replacements start at once, and the stops wait for its return', async () => {
    const cluster = await startWeb(3);
    await leave(cluster, 1_000);
    await cluster.complete(() => cluster.client.drainNode({ nodeId: 'node-1' }));
    await cluster.advance(3_000);
    expect(wantedNodes(cluster)).not.toContain('node-1');
    await cluster.reconnect('node-1');
    await cluster.advance(2_000);
    expect([...cluster.state.view().replicasOn('node-1')]).toEqual([]);
  });

  it('is not counted by a rolling update, which keeps min_available without its replica', async () => {
    const cluster = await startWeb(3);
    await leave(cluster, 1_000);
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'web',
        spec: { args: ['2'], rollout: { minAvailable: 2 } },
      }),
    );
    for (let passed = 0; passed < 5_000; passed += 50) {
      await cluster.advance(50);
      const serving = [...cluster.state.view().replicas()].filter(
        ({ value }) => value.ready && value.desiredRunning && value.nodeId !== 'node-1',
      );
      expect(serving.length).toBeGreaterThanOrEqual(2);
    }
  });

  it('has its EXCLUSIVE replicas replaced by the rule of the lease, before the grace ends', async () => {
    const cluster = await startExclusive();
    await leave(cluster, LEASE_MS + 8_000 - 200);
    expect(wantedNodes(cluster)).toEqual(['node-1', 'node-2']);
    await cluster.advance(600);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
    expect(cluster.state.view().node('node-1')?.value.lost).toBe(false);
    const losses = [...cluster.state.view().events()].filter(
      ({ reason }) => reason === 'ReplicasLost',
    );
    expect(losses.map(({ message }) => message)).toEqual([
      '1 replica replaced, because the agent of node node-1 left',
    ]);
    await cluster.reconnect('node-1');
    await cluster.advance(3_000);
    const left = [...cluster.agents.get('node-1')!.replicas.values()];
    expect(left).toEqual([]);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
  });

  it('has its EXCLUSIVE replicas replaced after lease and lost_after, whatever its Goodbye says', async () => {
    const cluster = await startExclusive();
    cluster.agents.get('node-1')!.leave(false);
    await cluster.advance(LEASE_MS + 8_000 - 200);
    expect(wantedNodes(cluster)).toEqual(['node-1', 'node-2']);
    await cluster.advance(600);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
  });

  it.each([0, 20, 500])(
    'has one record and one event for each departure and return when a commit takes %i ms',
    async (delayMs) => {
      let commitDelayMs = 0;
      const cluster = await startCluster(2, { commitDelayMs: () => commitDelayMs });
      commitDelayMs = delayMs;
      for (let count = 0; count < 2; count += 1) {
        await leave(cluster, 5_000);
        await cluster.reconnect('node-1');
        await cluster.advance(3_000);
      }
      expect(eventsOf(cluster, 'node-1')).toEqual([
        'AgentLeft',
        'AgentReturned',
        'AgentLeft',
        'AgentReturned',
      ]);
      expect(cluster.state.view().node('node-1')?.value.departure).toBeUndefined();
    },
  );

  it('leaves no record behind when it returns while its departure is being written', async () => {
    let commitDelayMs = 0;
    const cluster = await startCluster(2, { commitDelayMs: () => commitDelayMs });
    commitDelayMs = 300;
    await leave(cluster, 50);
    await cluster.reconnect('node-1');
    await cluster.advance(5_000);
    expect(cluster.state.view().node('node-1')?.value.departure).toBeUndefined();
    expect((await readNode(cluster, 'node-1')).status?.phase).toBe(NodePhase.READY);
  });
});

describe('an agent whose main loop does not turn', () => {
  const eventTexts = (cluster: TestCluster): readonly string[] =>
    [...cluster.state.view().events()]
      .filter(({ reason }) => ['AgentSlow', 'AgentRecovered', 'NodeLost'].includes(reason))
      .map(({ reason }) => reason);

  /** Lets a thread of the agent of `node-1` renew the lease while its main loop is blocked. */
  async function block(cluster: TestCluster, durationMs: number): Promise<void> {
    const agent = cluster.agents.get('node-1')!;
    agent.sendsPings = false;
    for (let ageMs = 0; ageMs < durationMs; ageMs += 500) {
      cluster.controllers.nodes.renewLease('node-1', ageMs);
      await cluster.advance(500);
    }
    agent.sendsPings = true;
  }

  it('keeps its replicas, and is not alive while its reports are older than a lease', async () => {
    const cluster = await startWeb();
    const before = wantedIds(cluster);
    await block(cluster, 2_000);
    expect(cluster.controllers.nodes.isAlive('node-1')).toBe(true);
    await cluster.advance(1_000);
    await block(cluster, 20_000);
    expect(wantedIds(cluster)).toEqual(before);
    expect(cluster.controllers.nodes.isAlive('node-1')).toBe(false);
    const { status } = await readNode(cluster, 'node-1');
    const slow = status?.conditions.find(({ type }) => type === ConditionType.AGENT_SLOW);
    expect([status?.phase, slow]).toMatchObject([
      NodePhase.READY,
      {
        status: true,
        reason: expect.stringMatching(
          /^the main loop of the agent last turned [\d.]+s ago.*The node is lost 30s after the last turn$/,
        ) as string,
      },
    ]);
    await cluster.advance(30_000);
    expect([cluster.controllers.nodes.isAlive('node-1'), wantedIds(cluster)]).toEqual([
      true,
      before,
    ]);
    expect(eventTexts(cluster)).toEqual(['AgentSlow', 'AgentRecovered']);
  });

  it('is lost when it hangs, although its lease is renewed', async () => {
    const cluster = await startWeb();
    await block(cluster, 31_000);
    expect(wantedNodes(cluster)).toEqual(['node-2', 'node-2']);
    expect(eventTexts(cluster)).toEqual(['AgentSlow', 'NodeLost']);
  });
});
