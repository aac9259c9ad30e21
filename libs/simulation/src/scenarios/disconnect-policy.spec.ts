import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  Disconnect_Mode as Mode,
  ReplicaStatus_Phase as Phase,
  Rollout_Strategy as Strategy,
  Taint_Effect as Effect,
} from '@cloudless/api';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../index.js';

const LEASE_MS = 3_000;
const EXCLUSIVE = { mode: Mode.EXCLUSIVE, stopAfter: durationFromMs(4_000) };
const capabilities = ['runtime.process', 'disconnect.exclusive'];

async function startExclusiveCluster(nodes: number): Promise<TestCluster> {
  const cluster = await startCluster(0);
  for (let number = 1; number <= nodes; number += 1)
    await cluster.addNode(`node-${number}`, { capabilities });
  return cluster;
}

/** Replicas of the workload that are not ordered to stop. */
function wantedReplicas(
  cluster: TestCluster,
): readonly { readonly id: string; readonly slot: number; readonly nodeId: string }[] {
  return [...cluster.state.view().replicas()]
    .map(({ value }) => value)
    .filter(({ desiredRunning }) => desiredRunning);
}

const eventReasons = (cluster: TestCluster): readonly string[] =>
  [...cluster.state.view().events()].map(({ reason }) => reason);

describe('disconnected node', () => {
  it.each([
    {
      name: 'the lease ends under AVAILABLE',
      disconnect: undefined,
      afterMs: LEASE_MS,
    },
    {
      name: 'lost_after has passed under AVAILABLE',
      disconnect: { lostAfter: durationFromMs(7_000) },
      afterMs: 10_000,
    },
    {
      name: 'the lease and twice stop_after have passed under EXCLUSIVE',
      disconnect: EXCLUSIVE,
      afterMs: LEASE_MS + 8_000,
    },
    {
      name: 'the lease and lost_after have passed under EXCLUSIVE',
      disconnect: { ...EXCLUSIVE, lostAfter: durationFromMs(20_000) },
      afterMs: LEASE_MS + 20_000,
    },
  ])('has its replicas replaced when $name, not before', async ({ disconnect, afterMs }) => {
    const cluster = await startExclusiveCluster(2);
    await createWeb(cluster, { replicas: 2, ...definedFields({ disconnect }) });
    await cluster.advance(1_000);
    const before = wantedReplicas(cluster).map(({ id }) => id);
    const agent = cluster.agents.get('node-1')!;
    await cluster.advance(10);
    agent.sendsPings = false;
    await cluster.advance(afterMs - 200);
    expect(wantedReplicas(cluster).map(({ id }) => id)).toEqual(before);
    await cluster.advance(600);
    expect(wantedReplicas(cluster).map(({ nodeId }) => nodeId)).toEqual(['node-2', 'node-2']);
  });

  it('has its replicas replaced at once when lost_after is removed after the lease has ended', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster, { replicas: 2, disconnect: { lostAfter: durationFromMs(3_600_000) } });
    await cluster.advance(1_000);
    cluster.agents.get('node-1')!.sendsPings = false;
    await cluster.advance(20_000, 50);
    expect(wantedReplicas(cluster).map(({ nodeId }) => nodeId)).toContain('node-1');
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'web',
        spec: { disconnect: {} },
        updateMask: { paths: ['disconnect'] },
      }),
    );
    await cluster.advance(1_000);
    expect(wantedReplicas(cluster).map(({ nodeId }) => nodeId)).toEqual(['node-2', 'node-2']);
  });

  it('has its replicas replaced at once when an operator confirms its loss, which is allowed only for a lost node', async () => {
    const cluster = await startExclusiveCluster(2);
    await createWeb(cluster, { replicas: 2, disconnect: EXCLUSIVE });
    await cluster.advance(1_000);
    const confirm = () =>
      cluster.complete(() => cluster.client.confirmNodeLost({ nodeId: 'node-1' }));
    await expect(confirm()).rejects.toThrow('node "node-1" is READY, not LOST');
    cluster.agents.get('node-1')!.sendsPings = false;
    await cluster.advance(LEASE_MS + 200);
    await confirm();
    await confirm();
    await cluster.advance(500);
    expect(wantedReplicas(cluster).map(({ nodeId }) => nodeId)).toEqual(['node-2', 'node-2']);
    expect(eventReasons(cluster).filter((reason) => reason === 'NodeLossConfirmed')).toHaveLength(
      1,
    );
  });

  it('has its replicas replaced when its loss is confirmed, even if many nodes fell silent together', async () => {
    const cluster = await startCluster(6);
    await createWeb(cluster, { replicas: 6 });
    await cluster.advance(1_000);
    for (const nodeId of ['node-1', 'node-2', 'node-3', 'node-4'])
      cluster.agents.get(nodeId)!.sendsPings = false;
    await cluster.advance(5_000);
    await cluster.complete(() => cluster.client.confirmNodeLost({ nodeId: 'node-1' }));
    await cluster.advance(2_000);
    const places = wantedReplicas(cluster).map(({ nodeId }) => nodeId);
    expect(places).not.toContain('node-1');
    expect(places).toHaveLength(6);
  });
});

describe('disconnect policy EXCLUSIVE', () => {
  it('reports the missing capability when no node has disconnect.exclusive', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 1, disconnect: EXCLUSIVE });
    await cluster.advance(500);
    expect((await readWeb(cluster)).status?.reason).toContain(
      'lacks the capability disconnect.exclusive: 1 of 1 nodes',
    );
  });

  it('sends stop_after to the agent', async () => {
    const cluster = await startExclusiveCluster(1);
    await createWeb(cluster, { replicas: 1, disconnect: EXCLUSIVE });
    await cluster.advance(500);
    expect(cluster.agents.get('node-1')!.started.map(({ order }) => order.value)).toMatchObject([
      { stopAfter: { seconds: 4n } },
    ]);
  });

  it('never reuses a slot while its replica may still run', async () => {
    const cluster = await startExclusiveCluster(2);
    await createWeb(cluster, { replicas: 2, disconnect: EXCLUSIVE });
    await cluster.advance(3_000);
    for (const agent of cluster.agents.values()) agent.obeysStops = false;
    for (const replicas of [1, 2]) {
      await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas }));
      await cluster.advance(1_000);
    }
    const slots = [...cluster.state.view().replicas()].map(({ value }) => value.slot);
    expect(slots.sort()).toEqual([0, 1, 2]);
  });

  it('can be enabled and disabled for running replicas without a restart', async () => {
    const cluster = await startExclusiveCluster(1);
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(3_000);
    const [before] = wantedReplicas(cluster);
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { disconnect: EXCLUSIVE } }),
    );
    await cluster.advance(1_000);
    const record = () => [...cluster.state.view().replicas()].map(({ value }) => value);
    expect(record()).toMatchObject([
      {
        id: before?.id,
        stopAfter: { seconds: 4n },
        lostAfter: { seconds: 8n },
        stopAfterUnconfirmed: false,
      },
    ]);
    expect((await readWeb(cluster)).status).toMatchObject({ version: 1, readyReplicas: 1 });
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'web',
        spec: { disconnect: {} },
        updateMask: { paths: ['disconnect'] },
      }),
    );
    await cluster.advance(1_000);
    expect(record()).toMatchObject([{ id: before?.id, stopAfterUnconfirmed: false }]);
    expect(record()[0]?.stopAfter).toBeUndefined();
    expect(record()[0]?.lostAfter).toBeUndefined();
  });

  it('waits for the longer stop_after that the agent received when stop_after is shortened while the node is cut off', async () => {
    const cluster = await startExclusiveCluster(2);
    await createWeb(cluster, {
      replicas: 1,
      disconnect: { mode: Mode.EXCLUSIVE, stopAfter: durationFromMs(20_000) },
    });
    await cluster.advance(1_000);
    const [before] = wantedReplicas(cluster);
    cluster.agents.get(before?.nodeId ?? '')!.sendsPings = false;
    cluster.agents.get(before?.nodeId ?? '')!.dropsOrders = 1_000;
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { disconnect: EXCLUSIVE } }),
    );
    await cluster.advance(40_000, 50);
    expect(wantedReplicas(cluster).map(({ id }) => id)).toEqual([before?.id]);
    await cluster.advance(5_000, 50);
    expect(wantedReplicas(cluster).map(({ id }) => id)).not.toEqual([before?.id]);
  });
});

/** Time that a replica takes to end. */
const STOP_MS = 700;

/**
 * Lets time pass while each replica takes {@link STOP_MS} to end.
 * @returns The highest number of replicas that ran at a moment, ending ones included.
 */
async function findMostRunning(cluster: TestCluster, forMs: number): Promise<number> {
  const stepMs = 10;
  const endingForMs = new Map<string, number>();
  let most = 0;
  for (let passed = 0; passed < forMs; passed += stepMs) {
    await cluster.advance(stepMs);
    let running = 0;
    for (const agent of cluster.agents.values())
      for (const [id, { phase }] of agent.replicas) {
        if (phase === Phase.STOPPED) continue;
        running += 1;
        if (phase !== Phase.STOPPING) continue;
        const endingMs = (endingForMs.get(id) ?? 0) + stepMs;
        endingForMs.set(id, endingMs);
        if (endingMs >= STOP_MS) agent.change(id, { phase: Phase.STOPPED, ready: false });
      }
    most = Math.max(most, running);
  }
  return most;
}

describe('voluntary move of an EXCLUSIVE workload of one replica', () => {
  interface Place {
    readonly id: string;
    readonly nodeId: string;
  }
  const moves: Readonly<
    Record<string, (client: TestCluster['client'], place: Place) => Promise<unknown>>
  > = {
    drain: (client, { nodeId }) => client.drainNode({ nodeId }),
    'forced drain': (client, { nodeId }) => client.drainNode({ nodeId, force: true }),
    'NO_EXECUTE taint': (client, { nodeId }) =>
      client.updateNode({ nodeId, setTaints: [{ key: 'bad', effect: Effect.NO_EXECUTE }] }),
    rebalance: async (client, { id }) => {
      const value = { name: 'web', replicaIds: [id] };
      const plan = await client.createPlan({ changes: [{ change: { case: 'evict', value } }] });
      await client.executePlan({ id: plan.id });
    },
    'new version': (client) =>
      client.updateWorkload({ name: 'web', spec: { env: { RELEASE: '2' } } }),
    'new version and drain': async (client, { nodeId }) => {
      await client.updateWorkload({ name: 'web', spec: { env: { RELEASE: '2' } } });
      await client.drainNode({ nodeId });
    },
    'new version and forced drain': async (client, { nodeId }) => {
      await client.updateWorkload({ name: 'web', spec: { env: { RELEASE: '2' } } });
      await client.drainNode({ nodeId, force: true });
    },
  };
  const stopFirst = { maxSurge: 0, maxUnavailable: 1 };
  const recreate = { strategy: Strategy.RECREATE, maxUnavailable: 1 };
  const names = Object.keys(moves);
  const isMove = (name: string): boolean => !name.startsWith('new version');
  const rows = [
    ...names.map((move) => ({ move, limits: 'max_surge 0, max_unavailable 1', most: 1 })),
    ...names.map((move) => ({ move, limits: 'RECREATE, max_unavailable 1', most: 1 })),
    ...names.filter(isMove).map((move) => ({ move, limits: 'defaults', most: 2 })),
  ];
  const settings: Readonly<Record<string, object>> = {
    'max_surge 0, max_unavailable 1': stopFirst,
    'RECREATE, max_unavailable 1': recreate,
    defaults: {},
  };

  it.each(rows)(
    'runs at most $most at a time with a $move and $limits, and completes',
    async ({ move, limits, most }) => {
      const cluster = await startExclusiveCluster(3);
      const rollout = { minReadyDuration: durationFromMs(500), ...settings[limits] };
      await createWeb(cluster, { replicas: 1, disconnect: EXCLUSIVE, rollout });
      await cluster.advance(2_000);
      for (const agent of cluster.agents.values()) agent.obeysStops = false;
      const [before] = wantedReplicas(cluster);
      await cluster.complete(() => moves[move]!(cluster.client, before!));
      expect(await findMostRunning(cluster, 6_000)).toBe(most);
      const [after, ...others] = wantedReplicas(cluster);
      expect(others).toEqual([]);
      expect(after?.id).not.toBe(before?.id);
      expect((await readWeb(cluster)).status).toMatchObject({
        readyReplicas: 1,
        totalReplicas: 1,
        updatedReplicas: 1,
      });
      if (move !== 'new version') expect(after?.nodeId).not.toBe(before?.nodeId);
    },
  );
});
