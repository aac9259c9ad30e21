import { create } from '@bufbuild/protobuf';
import {
  Condition_Type as ConditionType,
  HelloSchema,
  NodeStatus_Phase as NodePhase,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import { CoordinatorRecordSchema } from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';
import type { ScriptedAgent } from '../testing/scripted-agent.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
});
afterEach(() => bed.stop());

/** An order revision newer than every order so far. */
const NEWEST = 1_000n;

/** The order revision of the newest order of a replica. */
const orderRevisionOf = (agent: ScriptedAgent, replicaId: string): bigint =>
  agent.orderMessages.findLast((order) => order.replicaId === replicaId)?.orderRevision ?? 0n;

describe('SessionHub.runSession', () => {
  it('sends Welcome with cluster id, epoch, protocol version and intervals', async () => {
    const agent = await bed.connectAgent('node-1', { protocolMax: 2 });
    expect(agent.received[0]?.message).toMatchObject({
      case: 'welcome',
      value: {
        clusterId: bed.state.clusterId,
        epoch: bed.state.epoch,
        protocol: 2,
        lease: { seconds: 3n },
        pingInterval: { seconds: 1n },
        usageInterval: { seconds: 10n },
      },
    });
  });

  it('names the coordinators after the Welcome, and again when one joins or moves', async () => {
    const put = (id: string, address: string) =>
      bed.state.commitObserved(
        bed.state
          .transaction()
          .put('coordinator', id, create(CoordinatorRecordSchema, { id, address })),
      );
    await put('one', 'https://10.0.0.1:8080');
    const agent = await bed.connectAgent('node-1');
    const named = () =>
      agent.received.flatMap(({ message }) =>
        message.case === 'coordinators'
          ? [message.value.coordinators.map(({ id, address }) => `${id} ${address}`)]
          : [],
      );
    expect(named()).toEqual([['one https://10.0.0.1:8080']]);
    await put('two', 'https://10.0.0.2:8080');
    await bed.state.commitObserved(bed.state.transaction().delete('coordinator', 'one'));
    await put('two', 'https://10.0.0.3:8080');
    await bed.settle();
    expect(named().slice(1)).toEqual([
      ['one https://10.0.0.1:8080', 'two https://10.0.0.2:8080'],
      ['two https://10.0.0.3:8080'],
    ]);
  });

  it('rejects a Hello that arrives while the hub is closing', async () => {
    await bed.api.close();
    const agent = await bed.connectAgent('node-1');
    expect(agent).toMatchObject({ ended: true, received: [] });
    expect(String(agent.failure)).toContain('this coordinator takes no more agents; dial again');
  });

  it('rejects a session whose first message is not Hello', async () => {
    const messages = bed.client.session(
      (async function* () {
        yield { message: { case: 'goodbye' as const, value: { reason: '' } } };
      })(),
    );
    await expect(messages[Symbol.asyncIterator]().next()).rejects.toThrow(
      'the first message of a session must be `hello`',
    );
  });

  it.each([
    { name: 'another cluster', hello: { clusterId: 'f'.repeat(16) }, says: 'belongs to cluster' },
    { name: 'another machine', hello: { instanceId: 'x'.repeat(16) }, says: 'another machine' },
    {
      name: 'a newer protocol',
      hello: { protocolMin: 3, protocolMax: 4 },
      says: 'protocol 3 to 4',
    },
    { name: 'an unknown node', hello: { nodeId: 'node-9' }, says: 'is not enrolled' },
    { name: 'a negative capacity', hello: { capacity: { cpuMillis: -1 } }, says: 'cpu_millis' },
    { name: 'a negative replica limit', hello: { maxReplicas: -1 }, says: 'max_replicas' },
    { name: 'a taint without key', hello: { taints: [{ key: '' }] }, says: 'taints[0].key' },
  ])('rejects a Hello with $name', async ({ hello, says }) => {
    const agent = await bed.connectAgent('node-1', hello);
    expect(agent.ended).toBe(true);
    expect(String(agent.failure)).toContain(says);
  });

  it('stores a Hello without conditions and epochs, and the conditions as live status', async () => {
    await bed.connectAgent('node-1', {
      zone: 'zone-a',
      conditions: [{ type: ConditionType.DISK_PRESSURE, status: true }],
      unreachableEpoch: 1n,
      unreachableAddress: 'http://a',
    });
    expect(bed.state.view().node('node-1')?.value.hello).toMatchObject({
      zone: 'zone-a',
      conditions: [],
      highestEpoch: 0n,
      unreachableEpoch: 0n,
      unreachableAddress: '',
    });
    expect(bed.nodes.conditions.get('node-1')).toHaveLength(1);
    expect(bed.events('NodeJoined')).toHaveLength(1);
  });

  it('sends orders and marks the node as alive only after the complete inventory', async () => {
    await bed.putReplica('w-0');
    const agent = await bed.connectAgent('node-1');
    agent.send({ message: { case: 'inventory', value: { replicas: [], last: false } } });
    await bed.clock.advance(5_000);
    expect(agent.kinds).toEqual(['welcome']);
    expect(bed.nodes.status('node-1').alive).toBe(false);
    agent.sendInventory();
    await bed.settle();
    expect(agent.kinds).toEqual(['welcome', 'order', 'admitted']);
    expect(bed.nodes.status('node-1').alive).toBe(true);
  });

  it('starts no replica that the inventory reports as succeeded', async () => {
    await bed.putReplica('w-0', { phase: Phase.RUNNING });
    const agent = await bed.connectAgent('node-1');
    const report = { replicaId: 'w-0', workloadUid: 'w', phase: Phase.SUCCEEDED };
    agent.sendInventory([report]);
    await bed.settle();
    expect(bed.replica('w-0').phase).toBe(Phase.SUCCEEDED);
    expect(agent.orders.filter((order) => order.startsWith('start'))).toEqual([]);
  });

  it('ends started replicas that the inventory does not contain, and starts an assigned one', async () => {
    await bed.putReplica('w-0', { phase: Phase.RUNNING });
    await bed.putReplica('w-1', { phase: Phase.RUNNING, desiredRunning: false });
    await bed.putReplica('w-2');
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    expect([0, 1, 2].map((number) => bed.replica(`w-${number}`).phase)).toEqual([
      Phase.FAILED,
      Phase.STOPPED,
      Phase.ASSIGNED,
    ]);
    expect(agent.orders).toEqual(['start w-2']);
  });

  it('repeats an order after 1, 2, 4 and 8 seconds until a report acknowledges it', async () => {
    await bed.putReplica('w-0');
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    for (const [seconds, sent] of [
      [1.5, 2],
      [2, 3],
      [4, 4],
      [8, 5],
      [8, 6],
    ] as const) {
      await bed.clock.advance(seconds * 1_000);
      expect(agent.orders).toHaveLength(sent);
    }
    await bed.putReplica('w-1');
    await bed.settle();
    expect(agent.orders.filter((order) => order === 'start w-1')).toHaveLength(1);
    const orderRevision = orderRevisionOf(agent, 'w-0');
    agent.sendReport({ replicaId: 'w-0', orderRevision, phase: Phase.STARTING });
    await bed.clock.advance(20_000);
    expect(agent.orders.filter((order) => order === 'start w-0')).toHaveLength(6);
  });

  it('repeats the orders of replicas alone that the agent has not acknowledged', async () => {
    for (let number = 0; number < 5; number += 1) await bed.putReplica(`w-${number}`);
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    for (const { replicaId, orderRevision } of agent.orderMessages)
      if (replicaId !== 'w-3')
        agent.sendReport({ replicaId, orderRevision, phase: Phase.STARTING });
    await bed.clock.advance(1_500);
    expect(agent.orders.slice(5)).toEqual(['start w-3']);
  });

  it('sends an acknowledged order again when a later report contains order revision 0', async () => {
    await bed.putReplica('w-0', { orderRevision: 1n });
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    const orderRevision = orderRevisionOf(agent, 'w-0');
    agent.sendReport({ replicaId: 'w-0', orderRevision, phase: Phase.STARTING });
    agent.sendReport({ replicaId: 'w-0', orderRevision: 0n, phase: Phase.STARTING });
    await bed.clock.advance(1_000);
    expect(agent.orders).toEqual(['start w-0', 'start w-0']);
  });

  it('sends the order of a committed change at once', async () => {
    await bed.putReplica('w-0');
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    const orderRevision = orderRevisionOf(agent, 'w-0');
    agent.sendReport({ replicaId: 'w-0', orderRevision, phase: Phase.RUNNING });
    await bed.settle();
    await bed.updateReplica('w-0', { desiredRunning: false, orderRevision: NEWEST });
    await bed.settle();
    expect(agent.orders).toEqual(['start w-0', 'stop w-0']);
    await bed.putReplica('w-1');
    await bed.settle();
    expect(agent.orders.at(-1)).toBe('start w-1');
  });

  it('sends no order to the agent of another node', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.putReplica('w-0', { nodeId: 'node-2' });
    await bed.clock.advance(2_000);
    expect(agent.orders).toEqual([]);
  });

  it('repeats stop orders for an orphan until it has stopped, then forget orders until it is forgotten', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory([{ replicaId: 'x-0', workloadUid: 'x', phase: Phase.RUNNING }]);
    await bed.clock.advance(1_500);
    expect(agent.orders).toEqual(['stop x-0', 'stop x-0']);
    const stopped = { replicaId: 'x-0', workloadUid: 'x', phase: Phase.STOPPED };
    agent.sendReport({ ...stopped, orderRevision: orderRevisionOf(agent, 'x-0') });
    await bed.clock.advance(1_500);
    expect(agent.orders.slice(2)).toEqual(['forget x-0', 'forget x-0']);
    agent.sendReport({ ...stopped, forgotten: true });
    await bed.clock.advance(5_000);
    expect(agent.orders).toHaveLength(4);
  });

  describe('with an orphan of a workload on node-1', () => {
    const orphan = { replicaId: 'w-9', workloadUid: 'w', phase: Phase.RUNNING };
    const stopAfter = { seconds: 4n };
    const connect = async (
      nodeId: string,
      inventory?: Parameters<ScriptedAgent['sendInventory']>[0],
    ) => {
      const agent = await bed.connectAgent(nodeId);
      agent.sendInventory(inventory);
      await bed.settle();
      return agent;
    };
    const waits = () =>
      bed.state
        .view()
        .events()
        .flatMap(({ reason, workload, replicaId }) =>
          reason === 'StartWaits' ? [`${workload} ${replicaId}`] : [],
        );

    it('starts an EXCLUSIVE replica on node-2 only when the orphan has ended, and says so once', async () => {
      await bed.putReplica('w-0', { nodeId: 'node-2', stopAfter });
      const holder = await connect('node-1', [orphan]);
      const starter = await connect('node-2');
      await bed.putReplica('w-1', { nodeId: 'node-2', stopAfter });
      const orderRevision = orderRevisionOf(holder, 'w-9');
      holder.sendReport({ ...orphan, phase: Phase.STOPPING, orderRevision });
      await bed.clock.advance(60_000);
      expect(starter.orders).toEqual([]);
      expect(waits()).toEqual(['web-w w-0', 'web-w w-1']);
      holder.sendReport({ ...orphan, phase: Phase.STOPPED, orderRevision });
      await bed.clock.advance(1_000);
      expect(starter.orders).toEqual(['start w-0', 'start w-1']);
    });

    it('waits also while the agent of node-1 is disconnected, until its inventory lacks the orphan', async () => {
      await bed.putReplica('w-0', { nodeId: 'node-2', stopAfter });
      const holder = await connect('node-1', [orphan]);
      const starter = await connect('node-2');
      holder.disconnect();
      await bed.clock.advance(2_000);
      const again = await connect('node-1', [orphan]);
      await bed.clock.advance(2_000);
      again.disconnect();
      await bed.clock.advance(2_000);
      expect(starter.orders).toEqual([]);
      await connect('node-1', []);
      await bed.clock.advance(1_000);
      expect(starter.orders).toEqual(['start w-0']);
    });

    it.each([
      { name: 'lost', end: async () => bed.nodes.setPhase('node-1', NodePhase.LOST) },
      {
        name: 'removed',
        end: async () => {
          await bed.state.commitObserved(bed.state.transaction().delete('node', 'node-1'));
        },
      },
    ])('starts the replica when node-1 is $name', async ({ end }) => {
      await bed.putReplica('w-0', { nodeId: 'node-2', stopAfter });
      await connect('node-1', [orphan]);
      const starter = await connect('node-2');
      await bed.clock.advance(2_000);
      expect(starter.orders).toEqual([]);
      await end();
      await bed.clock.advance(1_000);
      expect(starter.orders).toEqual(['start w-0']);
    });

    it('delays the start order in the response of a Heartbeat', async () => {
      await bed.putReplica('w-0', { nodeId: 'node-2', stopAfter });
      await connect('node-1', [orphan]);
      const instanceId = 'instance-of-node-2-0123456789';
      await bed.client.enrollNode({ nodeId: 'node-2', instanceId });
      const { clusterId } = bed.state;
      const hello = { protocolMin: 1, protocolMax: 1, nodeId: 'node-2', instanceId, clusterId };
      const { orders } = await bed.client.heartbeat({ hello, inventory: { last: true } });
      expect(orders).toEqual([]);
    });

    it.each([
      { name: 'a replica that is not EXCLUSIVE', id: 'w-0', fields: {}, order: 'start w-0' },
      { name: 'another workload', id: 'x-0', fields: { stopAfter }, order: 'start x-0' },
      {
        name: 'a replica that has been started',
        id: 'w-0',
        fields: { stopAfter, phase: Phase.STARTING },
        order: 'start w-0',
      },
      {
        name: 'a stop order',
        id: 'w-0',
        fields: { stopAfter, desiredRunning: false },
        order: 'stop w-0',
      },
    ])('does not delay the order of $name', async ({ id, fields, order }) => {
      await connect('node-1', [orphan]);
      const starter = await connect('node-2');
      await bed.putReplica(id, { nodeId: 'node-2', ...fields });
      await bed.settle();
      expect(starter.orders).toEqual([order]);
    });
  });

  it('drops messages of a session after a newer session of the node began', async () => {
    await bed.putReplica('w-0');
    const older = await bed.connectAgent('node-1');
    older.sendInventory();
    await bed.settle();
    const newer = await bed.connectAgent('node-1');
    newer.sendInventory([{ replicaId: 'w-0', workloadUid: 'w', phase: Phase.STARTING }]);
    await bed.settle();
    const renewals = bed.nodes.renewals.get('node-1');
    older.sendReport({ replicaId: 'w-0', workloadUid: 'w', phase: Phase.RUNNING, ready: true });
    await bed.settle();
    expect(bed.replica('w-0')).toMatchObject({ phase: Phase.STARTING, ready: false });
    expect(bed.nodes.renewals.get('node-1')).toBe(renewals);
    expect(older.ended).toBe(true);
    expect(newer.ended).toBe(false);
    expect(bed.nodes.status('node-1').alive).toBe(true);
  });

  it('ends an older session of the same node at once', async () => {
    const older = await bed.connectAgent('node-1');
    older.sendInventory();
    await bed.settle();
    const newer = await bed.connectAgent('node-1');
    await bed.settle();
    expect(older.ended).toBe(true);
    expect(newer.ended).toBe(false);
    expect(bed.nodes.status('node-1').phase).toBe(NodePhase.DISCONNECTED);
  });

  it('repeats an order no earlier than one second after it was sent', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.clock.advance(500);
    await bed.putReplica('w-0');
    await bed.clock.advance(900);
    expect(agent.orders).toEqual(['start w-0']);
    await bed.clock.advance(1_000);
    expect(agent.orders).toEqual(['start w-0', 'start w-0']);
  });

  it('sends a forget order for an orphan that has failed, and no order for an orphan that is stopping', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory([
      { replicaId: 'x-0', workloadUid: 'x', phase: Phase.FAILED },
      { replicaId: 'x-1', workloadUid: 'x', phase: Phase.STOPPING },
    ]);
    await bed.settle();
    expect(agent.orders).toEqual(['forget x-0']);
  });

  it('ends a session whose lease has ended, so that the agent sends its inventory again', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    bed.nodes.setPhase('node-1', NodePhase.LOST);
    await bed.settle();
    expect(agent.ended).toBe(true);
  });

  it('keeps a session without inventory when the node is lost', async () => {
    const agent = await bed.connectAgent('node-1');
    bed.nodes.setPhase('node-1', NodePhase.LOST);
    await bed.settle();
    expect(agent.ended).toBe(false);
  });

  it('renews the lease for each message and ping, and ends the session when the connection closes', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    const before = bed.nodes.renewals.get('node-1') ?? 0;
    bed.connection('node-1').ping();
    agent.sendReport({ replicaId: 'w-9', phase: Phase.STOPPED, forgotten: true });
    await bed.settle();
    expect(bed.nodes.renewals.get('node-1')).toBe(before + 2);
    bed.connection('node-1').close();
    await bed.settle();
    expect(agent.ended).toBe(true);
    expect(bed.nodes.status('node-1').phase).toBe(NodePhase.DISCONNECTED);
    bed.connection('node-1').ping();
    expect(bed.nodes.renewals.get('node-1')).toBe(before + 2);
  });

  it('stores the conditions and the usage that an agent reports', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.send({
      message: {
        case: 'usage',
        value: {
          usage: { cpuMillis: 5 },
          conditions: [{ type: ConditionType.MEMORY_PRESSURE, status: true }],
        },
      },
    });
    await bed.settle();
    expect(bed.nodes.status('node-1').usage?.cpuMillis).toBe(5);
    expect(bed.nodes.conditions.get('node-1')?.[0]?.type).toBe(ConditionType.MEMORY_PRESSURE);
  });

  it('logs an error when the agent refuses an order', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.send({ message: { case: 'refused', value: { replicaId: 'w-0', reason: 'newer' } } });
    await bed.settle();
    await bed.close({ problems: ['agent refused an order'] });
    // For `afterEach`, which stops the test bed.
    bed = await ApiTestBed.open();
  });

  it('sends no order after an agent reports an epoch newer than that of the store, until the restored state is accepted', async () => {
    await bed.putReplica('w-0');
    const agent = await bed.connectAgent('node-1', { highestEpoch: 99n });
    agent.sendInventory();
    await bed.clock.advance(3_000);
    expect(bed.state.storeRolledBack).toMatchObject({ nodeId: 'node-1', highestEpoch: 99n });
    expect(agent.orders).toEqual([]);
    expect(await bed.admin.acceptRestoredState({})).toMatchObject({ accepted: true });
    await bed.clock.advance(1_000);
    expect(agent.orders).toEqual(['start w-0']);
  });

  it.each([
    { name: 'an order that this store never gave', orderRevision: 10_000n },
    {
      name: 'an order newer than the record of the replica',
      orderRevision: 1n,
      phase: Phase.RUNNING,
    },
  ])(
    'detects that the store went back in time when a report contains $name',
    async ({ orderRevision, phase }) => {
      await bed.putReplica('w-0', { phase: phase ?? Phase.ASSIGNED });
      const agent = await bed.connectAgent('node-1');
      agent.sendInventory([
        { replicaId: 'w-0', workloadUid: 'w', phase: Phase.RUNNING, orderRevision },
      ]);
      await bed.settle();
      expect(bed.state.storeRolledBack).toBeDefined();
    },
  );
});

describe('SessionHub.handleHeartbeat', () => {
  const hello = () => ({
    protocolMin: 1,
    protocolMax: 1,
    nodeId: 'node-1',
    instanceId: 'instance-of-node-1-0123456789',
    clusterId: bed.state.clusterId,
  });

  it('marks the node as alive and returns start orders, and stop orders for orphans', async () => {
    await bed.client.enrollNode({ nodeId: 'node-1', instanceId: hello().instanceId });
    await bed.putReplica('w-0');
    const response = await bed.client.heartbeat({
      hello: hello(),
      inventory: {
        replicas: [{ replicaId: 'x-0', workloadUid: 'x', phase: Phase.RUNNING }],
        last: true,
      },
    });
    expect(response.orders.map(({ order, replicaId }) => `${order.case} ${replicaId}`)).toEqual([
      'start w-0',
      'stop x-0',
    ]);
    expect(response.welcome?.clusterId).toBe(bed.state.clusterId);
    expect(bed.nodes.status('node-1').alive).toBe(true);
  });

  it('returns no order that the report acknowledges, and renews the lease of a node that is alive', async () => {
    await bed.client.enrollNode({ nodeId: 'node-1', instanceId: hello().instanceId });
    await bed.putReplica('w-0');
    const first = await bed.client.heartbeat({ hello: hello(), inventory: { last: true } });
    const orderRevision = first.orders[0]?.orderRevision ?? 0n;
    const report = { replicaId: 'w-0', workloadUid: 'w', phase: Phase.STARTING, orderRevision };
    const second = await bed.client.heartbeat({
      hello: hello(),
      inventory: { replicas: [report], last: true },
    });
    expect(second.orders).toEqual([]);
    expect(bed.replica('w-0').phase).toBe(Phase.STARTING);
    expect(bed.nodes.renewals.get('node-1')).toBe(1);
  });

  it('ends replicas that the inventory does not contain only when the inventory is complete', async () => {
    await bed.client.enrollNode({ nodeId: 'node-1', instanceId: hello().instanceId });
    await bed.putReplica('w-0', { phase: Phase.RUNNING });
    await bed.client.heartbeat({ hello: hello(), inventory: { last: false } });
    expect(bed.replica('w-0').phase).toBe(Phase.RUNNING);
    const response = await bed.client.heartbeat({ hello: hello(), inventory: { last: true } });
    expect(bed.replica('w-0').phase).toBe(Phase.FAILED);
    expect(response.orders).toEqual([]);
  });

  it('rejects a request without Hello', async () => {
    await expect(bed.client.heartbeat({})).rejects.toThrow('hello');
  });

  it('returns no orders when the agent has an epoch newer than that of the store', async () => {
    await bed.client.enrollNode({ nodeId: 'node-1', instanceId: hello().instanceId });
    await bed.putReplica('w-0');
    const response = await bed.client.heartbeat({
      hello: create(HelloSchema, { ...hello(), highestEpoch: 99n }),
      inventory: { last: true },
    });
    expect(response.orders).toEqual([]);
  });
});
