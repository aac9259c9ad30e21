import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  AgentMessageSchema,
  HelloSchema,
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as RestartPolicy,
  type AgentMessage,
} from '@cloudless/api';
import { Wakeup } from '@cloudless/base';
import type { TestCluster } from '../index.js';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

/** A session whose messages a test sends one by one. */
class OpenSession {
  private readonly messages: AgentMessage[] = [];
  private readonly wakeup = new Wakeup();

  constructor(cluster: TestCluster) {
    const responses = cluster.client.session(this.outgoing());
    void (async () => {
      for await (const _message of responses);
    })().catch(() => undefined); // A newer session ends this session.
  }

  send(message: NonNullable<MessageInitShape<typeof AgentMessageSchema>['message']>): void {
    this.messages.push(create(AgentMessageSchema, { message }));
    this.wakeup.wake();
  }

  private async *outgoing(): AsyncGenerator<AgentMessage> {
    for (;;) {
      const next = this.messages.shift();
      if (next !== undefined) yield next;
      else await this.wakeup.wait();
    }
  }
}

/** Opens another session for a node, with the Hello and the replicas of its agent. */
async function openSession(cluster: TestCluster, nodeId: string): Promise<OpenSession> {
  const session = new OpenSession(cluster);
  const { hello } = cluster.state.view().node(nodeId)!.value;
  session.send({ case: 'hello', value: create(HelloSchema, hello) });
  const replicas = [...cluster.agents.get(nodeId)!.replicas.values()];
  session.send({ case: 'inventory', value: { replicas, last: true } });
  await cluster.advance(100);
  return session;
}

describe('messages of a session', () => {
  it('are ignored after a newer session of the node has begun', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(500);
    const [replica] = cluster.agents.get('node-1')!.replicas.values();
    const older = await openSession(cluster, 'node-1');
    older.send({
      case: 'report',
      value: { ...replica!, ready: false, reason: 'of the older session' },
    });
    await cluster.advance(100);
    expect((await readWeb(cluster)).status?.replicas[0]).toMatchObject({
      ready: false,
      reason: 'of the older session',
    });
    const newer = await openSession(cluster, 'node-1');
    newer.send({ case: 'report', value: replica! });
    await cluster.advance(100);
    older.send({
      case: 'report',
      value: { ...replica!, phase: Phase.FAILED, ready: false, reason: 'late' },
    });
    await cluster.advance(500);
    const { status } = await readWeb(cluster);
    expect(status?.replicas.map(({ id, ready }) => [id, ready])).toEqual([
      [replica!.replicaId, true],
    ]);
  });
});

describe('inventory', () => {
  it.each([
    { name: 'has succeeded meanwhile', phase: Phase.SUCCEEDED },
    { name: 'has failed meanwhile', phase: Phase.FAILED },
    { name: 'is missing at the agent', phase: undefined },
  ])(
    'is written before orders are computed, so a replica that $name is not started again',
    async ({ phase }) => {
      let commitDelayMs = 0;
      const cluster = await startCluster(1, { commitDelayMs: () => commitDelayMs });
      await createWeb(cluster, { replicas: 1, restart: { policy: RestartPolicy.NEVER } });
      await cluster.advance(1_000);
      const agent = cluster.agents.get('node-1')!;
      const [replica] = agent.replicas.values();
      agent.disconnect();
      await cluster.advance(100);
      // The agent has lost its stored orders, as after a reinstallation of its machine.
      if (phase === undefined) agent.replicas.clear();
      else
        agent.replicas.set(replica!.replicaId, {
          ...replica!,
          phase,
          ready: false,
          orderRevision: 0n,
        });
      commitDelayMs = 200;
      const before = agent.acceptedOrders;
      await cluster.reconnect('node-1');
      await cluster.advance(150);
      expect(agent.acceptedOrders).toBe(before);
      commitDelayMs = 0;
      await cluster.advance(3_000);
      expect(
        agent.started.filter(({ replicaId }) => replicaId === replica!.replicaId),
      ).toHaveLength(1);
    },
  );

  it('of a heartbeat is written before orders are computed, also for a node that is alive', async () => {
    let commitDelayMs = 0;
    const cluster = await startCluster(1, { commitDelayMs: () => commitDelayMs });
    await createWeb(cluster, { replicas: 1, restart: { policy: RestartPolicy.NEVER } });
    await cluster.advance(1_000);
    const [replica] = cluster.agents.get('node-1')!.replicas.values();
    commitDelayMs = 50;
    const { hello } = cluster.state.view().node('node-1')!.value;
    const { orders } = await cluster.complete(() =>
      cluster.client.heartbeat({
        hello: create(HelloSchema, hello),
        inventory: { replicas: [], last: true },
      }),
    );
    const starts = orders
      .filter(({ order }) => order.case === 'start')
      .map(({ replicaId }) => replicaId);
    expect(starts).not.toContain(replica!.replicaId);
  });
});
