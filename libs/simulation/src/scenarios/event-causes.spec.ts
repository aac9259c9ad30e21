import { ReplicaStatus_Phase as Phase, type Event } from '@cloudless/api';
import { silentLog, type Log } from '@cloudless/base';
import type { TestCluster } from '../index.js';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

const eventsOf = (cluster: TestCluster): readonly Event[] => cluster.state.view().events();

/** Returns the reasons from an event back to its first cause. */
function chainOf(cluster: TestCluster, event: Event): readonly string[] {
  const cause = eventsOf(cluster).find(({ id }) => id === event.causeId);
  return cause === undefined ? [event.reason] : [event.reason, ...chainOf(cluster, cause)];
}

const lastOf = (cluster: TestCluster, reason: string): Event => {
  const found = eventsOf(cluster).filter((event) => event.reason === reason);
  if (found.length === 0)
    throw new Error(
      `no ${reason} among ${eventsOf(cluster)
        .map((event) => event.reason)
        .join(' ')}`,
    );
  return found[found.length - 1]!;
};

describe('events and their causes', () => {
  it('link an update to the request, the new version, its replicas, their nodes, and the stopped old replicas', async () => {
    const cluster = await startCluster(3);
    await createWeb(cluster);
    await cluster.advance(15_000, 50);
    const spec = { command: ['serve', '2'] };
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec, requestId: 'update-2' }),
    );
    await cluster.advance(60_000, 100);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 3, updatedReplicas: 3 });
    const updateCauses = ['WorkloadUpdated', 'UpdateWorkload'];
    const ready = lastOf(cluster, 'ReplicaReady');
    expect(chainOf(cluster, ready)).toEqual([
      'ReplicaReady',
      'ReplicasPlaced',
      'ReplicasCreated',
      ...updateCauses,
    ]);
    expect(chainOf(cluster, lastOf(cluster, 'ReplicaStopped'))).toEqual([
      'ReplicaStopped',
      'ReplicasStopping',
      ...updateCauses,
    ]);
    expect(chainOf(cluster, lastOf(cluster, 'RolloutCompleted'))).toEqual([
      'RolloutCompleted',
      'RolloutStarted',
      ...updateCauses,
    ]);
    const after = eventsOf(cluster).filter(({ id }) => id > lastOf(cluster, 'UpdateWorkload').id);
    expect(after.map(({ reason, requestId }) => [reason, requestId])).toEqual(
      after.map(({ reason }) => [reason, 'update-2']),
    );
  });

  it("link a lost node to its replicas' loss and their replacements", async () => {
    const cluster = await startCluster(4);
    await createWeb(cluster);
    await cluster.advance(2_000);
    const placed = (await readWeb(cluster)).status!.replicas[0]!;
    cluster.agents.get(placed.nodeId)!.sendsPings = false;
    await cluster.advance(8_000);
    const ready = lastOf(cluster, 'ReplicaReady');
    expect(chainOf(cluster, ready)).toEqual([
      'ReplicaReady',
      'ReplicasPlaced',
      'ReplicasCreated',
      'ReplicasLost',
      'NodeLost',
    ]);
    expect(lastOf(cluster, 'ReplicasLost').replicaIds).toContain(placed.id);
    expect(lastOf(cluster, 'ReplicasCreated').requestId).toBe(''); // no request is the cause
  });

  it('lead from new replicas to the failed replica or the drain when replicas are replaced', async () => {
    const cluster = await startCluster(4);
    await createWeb(cluster, { restart: { policy: 0, maxRetries: 1 } });
    await cluster.advance(15_000, 50);
    const [first] = (await readWeb(cluster)).status!.replicas;
    cluster.agents
      .get(first!.nodeId)!
      .change(first!.id, { phase: Phase.FAILED, ready: false, reason: 'exit code 1' });
    await cluster.advance(2_000);
    expect(chainOf(cluster, lastOf(cluster, 'ReplicasCreated')).slice(0, 2)).toEqual([
      'ReplicasCreated',
      'ReplicaFailed',
    ]);
    await cluster.advance(15_000, 50);
    const nodeId = (await readWeb(cluster)).status!.replicas.find(({ ready }) => ready)!.nodeId;
    await cluster.complete(() => cluster.client.drainNode({ nodeId }));
    await cluster.advance(30_000, 50);
    for (const reason of ['ReplicasCreated', 'ReplicasStopping']) {
      expect(chainOf(cluster, lastOf(cluster, reason))).toEqual([
        reason,
        'NodeDraining',
        'DrainNode',
      ]);
    }
  });

  it('carry the decision, and are listed by relatedTo from the call to the ready replicas', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster, { requestId: '' });
    await cluster.advance(2_000);
    expect(lastOf(cluster, 'ReplicasCreated').decision).toMatchObject({
      id: expect.stringMatching(/^rollout\/[0-9a-f]+@\d+$/),
      why: 'version 1: 3 wanted, 0 present',
    });
    expect(lastOf(cluster, 'ReplicasPlaced').decision?.why).toMatch(
      /^each went to the best node that fitted it, with scores from 0\.\d+/,
    );
    const { events } = await cluster.complete(() =>
      cluster.client.listEvents({ relatedTo: lastOf(cluster, 'ReplicasPlaced').id }),
    );
    expect(events.map(({ reason }) => reason)).toEqual([
      ...['CreateWorkload', 'WorkloadCreated', 'ReplicasCreated', 'ReplicasPlaced'],
      ...['ReplicaReady', 'ReplicaReady', 'ReplicaReady'],
    ]);
    await expect(
      cluster.complete(() => cluster.client.listEvents({ relatedTo: 'gone' })),
    ).rejects.toThrow('event "gone" not found');
  });

  it('have the decision id that the log line of the pass has', async () => {
    const logged: unknown[] = [];
    const log: Log = {
      ...silentLog,
      info: (message, fields) =>
        message === 'workload advanced' && logged.push(fields?.['decisionId']),
      child: () => log,
    };
    const cluster = await startCluster(2, { log });
    await createWeb(cluster);
    await cluster.advance(2_000);
    expect(logged).toContain(lastOf(cluster, 'ReplicasCreated').decision?.id);
  });

  it('are limited to a few, then to one a minute with a count, when a replica flaps', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(1_000);
    const { id } = (await readWeb(cluster)).status!.replicas[0]!;
    const agent = cluster.agents.get('node-1')!;
    for (let turn = 0; turn < 40; turn += 1) {
      agent.change(id, {
        ready: turn % 2 === 1,
        restarts: Math.ceil((turn + 1) / 2),
        phase: Phase.RUNNING,
      });
      await cluster.advance(100, 50);
    }
    const flaps = (): readonly Event[] =>
      eventsOf(cluster).filter(({ replicaId, category }) => replicaId === id && category === 3);
    const eventCount = flaps().length;
    expect(eventCount).toBeLessThanOrEqual(7);
    await cluster.advance(120_000, 500);
    expect(flaps()).toHaveLength(eventCount + 1);
    expect(flaps().at(-1)).toMatchObject({ reason: 'ReplicaReady', count: 40 + 1 - eventCount });
  });
});
