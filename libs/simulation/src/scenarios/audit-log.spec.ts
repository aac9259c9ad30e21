import { Event_Category as Category, type Event } from '@cloudless/api';
import type { TestCluster } from '../index.js';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

const auditEvents = (cluster: TestCluster): readonly Event[] =>
  cluster.state
    .view()
    .events()
    .filter(({ category }) => category === Category.AUDIT);
const lastAuditEvent = (cluster: TestCluster): Event | undefined => auditEvents(cluster).at(-1);

/** A call, and the audit record that it must leave. */
interface Row {
  readonly rpc: string;
  readonly call: (cluster: TestCluster) => Promise<unknown>;
  /** Default: `ok`. */
  readonly result?: string;
  /** Fields of the event besides the reason and the audit fields. */
  readonly subject?: Partial<Event>;
}

const rows: readonly Row[] = [
  {
    rpc: 'CreateWorkload',
    call: ({ client }) => client.createWorkload({ name: 'two', spec: { command: ['x'] } }),
    subject: { namespace: 'default', workload: 'two' },
  },
  {
    rpc: 'UpdateWorkload',
    call: ({ client }) => client.updateWorkload({ name: 'web', spec: { command: ['y'] } }),
    subject: { workload: 'web' },
  },
  {
    rpc: 'ScaleWorkload',
    call: ({ client }) => client.scaleWorkload({ name: 'web', replicas: 2, requestId: 'scale-1' }),
    subject: { requestId: 'scale-1' },
  },
  {
    rpc: 'ScaleWorkload',
    call: ({ client }) => client.scaleWorkload({ name: 'web', replicas: 3 }),
    result: 'unchanged',
  },
  {
    rpc: 'DeleteWorkload',
    call: ({ client }) => client.deleteWorkload({ name: 'web' }),
    subject: { workload: 'web' },
  },
  {
    rpc: 'UpdateNode',
    call: ({ client }) => client.updateNode({ nodeId: 'node-1', setLabels: { a: 'b' } }),
    subject: { nodeId: 'node-1' },
  },
  { rpc: 'CordonNode', call: ({ client }) => client.cordonNode({ nodeId: 'node-1' }) },
  { rpc: 'DrainNode', call: ({ client }) => client.drainNode({ nodeId: 'node-1' }) },
  {
    rpc: 'UncordonNode',
    call: ({ client }) => client.uncordonNode({ nodeId: 'node-1' }),
    result: 'unchanged',
  },
  {
    rpc: 'EnrollNode',
    call: ({ client }) =>
      client.enrollNode({ nodeId: 'node-9', instanceId: 'instance-of-node-9-0123456789' }),
    subject: { nodeId: 'node-9' },
  },
  {
    rpc: 'ConfirmNodeLost',
    call: ({ client }) => client.confirmNodeLost({ nodeId: 'node-1' }),
    result: 'failed_precondition',
  },
  {
    rpc: 'RemoveNode',
    call: ({ client }) => client.removeNode({ nodeId: 'node-1' }),
    result: 'failed_precondition',
  },
  {
    rpc: 'DeleteWorkload',
    call: ({ client }) => client.deleteWorkload({ name: 'nothing' }),
    result: 'not_found',
  },
  {
    rpc: 'ExecCommand',
    call: ({ client }) => client.execCommand({ name: 'nothing', command: ['x'] }),
    result: 'not_found',
  },
  { rpc: 'Backup', call: (cluster) => drain(cluster.admin.backup({})), result: 'started' },
];

async function drain(items: AsyncIterable<unknown>): Promise<void> {
  for await (const item of items) void item;
}

async function aCluster(): Promise<TestCluster> {
  const cluster = await startCluster(2, { callerAddress: '127.0.0.7' });
  await createWeb(cluster);
  await cluster.advance(1_000);
  return cluster;
}

describe('audit log', () => {
  it.each(rows)(
    'records $rpc with its outcome ($result) before the response',
    async ({ rpc, call, result = 'ok', subject = {} }) => {
      const cluster = await aCluster();
      const before = auditEvents(cluster).length;
      let atResponse: readonly Event[] = [];
      const completed = cluster.complete(() =>
        call(cluster).finally(() => (atResponse = auditEvents(cluster))),
      );
      if (['ok', 'unchanged', 'started'].includes(result)) await completed;
      else await expect(completed).rejects.toThrow();
      expect(atResponse.slice(before)).toMatchObject([
        {
          reason: rpc,
          audit: {
            principal: 'anonymous@loopback',
            address: '127.0.0.7',
            rpc: expect.stringContaining(`/${rpc}`),
            result,
          },
          ...subject,
        },
      ]);
    },
  );

  it('commits the audit record in the transaction that applies the call', async () => {
    const cluster = await aCluster();
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 5 }));
    const view = cluster.state.view();
    const { uid } = view.workloadByName('default', 'web')!.value;
    expect(view.event(lastAuditEvent(cluster)!.id)?.revision).toBe(view.workload(uid)?.revision);
  });

  it('records a command before it begins, with its program only, because arguments may contain secrets', async () => {
    const cluster = await aCluster();
    const replica = (await readWeb(cluster)).status!.replicas[0]!;
    const stopping = new AbortController();
    const call = cluster.client.execCommand(
      { replicaId: replica.id, command: ['psql', '--password', 'hunter2'] },
      { signal: stopping.signal },
    );
    call.catch(() => undefined);
    await cluster.advance(100);
    const event = lastAuditEvent(cluster);
    expect(event).toMatchObject({
      reason: 'ExecCommand',
      replicaId: replica.id,
      nodeId: replica.nodeId,
      workload: 'web',
      audit: { result: 'started', program: 'psql', argumentCount: 2 },
    });
    expect(
      JSON.stringify(event, (_key, value: unknown) =>
        typeof value === 'bigint' ? String(value) : value,
      ),
    ).not.toContain('hunter2');
    stopping.abort();
  });

  it('starts no command that cannot be recorded', async () => {
    const cluster = await aCluster();
    const replica = (await readWeb(cluster)).status!.replicas[0]!;
    cluster.store.txn = () => Promise.reject(new Error('the disk is gone'));
    const ordersBefore = cluster.agents.get(replica.nodeId)!.acceptedOrders;
    await expect(
      cluster.complete(() => cluster.client.execCommand({ replicaId: replica.id, command: ['x'] })),
    ).rejects.toThrow('internal error');
    expect(cluster.agents.get(replica.nodeId)!.acceptedOrders).toBe(ordersBefore);
  });

  it('groups repeated refusals of one caller', async () => {
    const cluster = await aCluster();
    const before = auditEvents(cluster).length;
    const refused = () =>
      cluster
        .complete(() => cluster.client.deleteWorkload({ name: 'nothing' }))
        .catch(() => undefined);
    for (let turn = 0; turn < 50; turn += 1) await refused();
    expect(auditEvents(cluster).length - before).toBeLessThan(12);
    await cluster.advance(10_000, 100);
    await refused();
    expect(lastAuditEvent(cluster)?.count).toBeGreaterThan(35);
  });

  it('contains the trace id of the call', async () => {
    const cluster = await aCluster();
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    const headers = { traceparent: `00-${traceId}-00f067aa0ba902b7-01` };
    await cluster.complete(() => cluster.client.cordonNode({ nodeId: 'node-1' }, { headers }));
    expect(lastAuditEvent(cluster)?.audit?.traceId).toBe(traceId);
  });

  it('is kept longer than other events, until its own retention ends', async () => {
    const dayMs = 24 * 3_600_000;
    const cluster = await startCluster(2, { retention: { eventMs: dayMs, auditMs: 3 * dayMs } });
    await createWeb(cluster);
    const passDays = async (days: number): Promise<void> => {
      await cluster.stopCoordinator(); // With a running coordinator, advancing days of timers would take minutes.
      await cluster.clock.advance(days * dayMs);
      await cluster.startCoordinator();
      await cluster.advance(1_000, 100);
    };
    const wasCreated = (): boolean =>
      cluster.state
        .view()
        .events()
        .some(({ reason }) => reason === 'WorkloadCreated');
    const before = auditEvents(cluster);
    expect([before.length, wasCreated()]).toEqual([3, true]);
    await passDays(2);
    expect([auditEvents(cluster), wasCreated()]).toEqual([before, false]);
    await passDays(2);
    expect(auditEvents(cluster)).toEqual([]);
  });

  it('is listed alone when a client lists category AUDIT', async () => {
    const cluster = await aCluster();
    const { events } = await cluster.complete(() =>
      cluster.client.listEvents({ categories: [Category.AUDIT] }),
    );
    expect(events.map(({ reason }) => reason)).toEqual([
      'EnrollNode',
      'EnrollNode',
      'CreateWorkload',
    ]);
  });
});
