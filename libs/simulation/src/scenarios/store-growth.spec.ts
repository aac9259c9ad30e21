import { jest } from '@jest/globals';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { Code } from '@connectrpc/connect';
import { definedFields } from '@cloudless/base';
import { Event_Category as Category, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { startCluster } from '../test-cluster/web-workload.js';
import { TestCluster } from '../test-cluster/test-cluster.js';

const DAY_MS = 24 * 3_600_000;
/** Each test runs a whole cluster for weeks of virtual time, which takes long on a busy machine. */
jest.setTimeout(60_000);

/** Returns the number of keys and bytes in the store by record kind, for example `event`. */
async function usageByKind(
  cluster: TestCluster,
): Promise<Map<string, { keys: number; bytes: number }>> {
  const usage = new Map<string, { keys: number; bytes: number }>();
  let after: string | undefined;
  do {
    const page = await cluster.store.range({
      prefix: '/',
      ...definedFields({ after }),
    });
    for (const { key, value } of page.entries) {
      const kind = key.split('/')[1] ?? '';
      const { keys, bytes } = usage.get(kind) ?? { keys: 0, bytes: 0 };
      usage.set(kind, { keys: keys + 1, bytes: bytes + key.length + value.byteLength });
    }
    after = page.next;
  } while (after !== undefined);
  return usage;
}

/** Creates a workload with two replicas, waits until they run, and deletes the workload. */
async function createAndDelete(cluster: TestCluster, name: string): Promise<void> {
  const requestId = `${name}-${cluster.clock.now()}`;
  const spec = { command: ['serve'], replicas: 2 };
  await cluster.complete(() =>
    cluster.client.createWorkload({ name, spec, requestId: `create-${requestId}` }),
  );
  await cluster.advance(600, 100);
  const running = [...cluster.agents.values()].flatMap(({ replicas }) => [...replicas.values()]);
  expect(running.filter(({ phase }) => phase === Phase.RUNNING)).toHaveLength(2);
  await cluster.complete(() =>
    cluster.client.deleteWorkload({ name, requestId: `delete-${requestId}` }),
  );
  for (let turn = 0; turn < 100; turn += 1) {
    if (cluster.state.view().workloadByName('default', name) === undefined) return;
    await cluster.advance(100, 100);
  }
  throw new Error(`workload ${name} was not deleted`);
}

const auditEvents = (cluster: TestCluster) =>
  cluster.state
    .view()
    .events()
    .filter(({ category }) => category === Category.AUDIT);

describe('created and deleted workload', () => {
  it('leaves only events, audit records and request results in the store', async () => {
    const cluster = await startCluster(2);
    const before = await usageByKind(cluster);
    await createAndDelete(cluster, 'web');
    const grown = [...(await usageByKind(cluster))].filter(
      ([kind, { keys }]) => keys !== before.get(kind)?.keys,
    );
    expect(grown.map(([kind]) => kind).sort()).toEqual(['event', 'request']);
    await cluster.complete(() => cluster.stopCoordinator());
  });
});

describe('store size over weeks of create-and-delete cycles', () => {
  const CYCLES = 40;
  const limits = {
    eventBytes: 20_000,
    auditBytes: 12_000,
    requestBytes: 10_000,
    eventMs: 10 * DAY_MS,
    auditMs: 20 * DAY_MS,
  };
  /**
   * Factor by which a bound may be exceeded: a sweep begins an eighth above the bound, and new
   * records arrive before the sweep ends.
   */
  const SLACK = 1.25;

  it('stays within the bounds of events, audit records and request results', async () => {
    const cluster = await startCluster(2, { retention: limits });
    for (let cycle = 0; cycle < CYCLES; cycle += 1) {
      await createAndDelete(cluster, 'web');
      if (cycle % 20 !== 19) continue;
      const usage = await usageByKind(cluster);
      expect(usage.get('event')!.bytes).toBeLessThan(
        (limits.eventBytes + limits.auditBytes) * SLACK,
      );
      expect(usage.get('request')!.bytes).toBeLessThan(limits.requestBytes * SLACK);
    }
    expect(auditEvents(cluster).length).toBeGreaterThan(10);
    await cluster.complete(() => cluster.stopCoordinator());
  });

  it('keeps each event for its retention period and not longer', async () => {
    const cluster = await TestCluster.start({
      retention: { eventMs: 10 * DAY_MS, auditMs: 20 * DAY_MS },
    });
    for (let day = 0; day < 30; day += 1) {
      await cluster.complete(() =>
        cluster.client.createWorkload({
          name: `w${day}`,
          spec: { command: ['serve'], replicas: 0 },
        }),
      );
      await cluster.stopCoordinator(); // With a running coordinator, advancing days of timers would take minutes.
      await cluster.clock.advance(DAY_MS);
      await cluster.startCoordinator();
    }
    await cluster.advance(1_000, 100);
    const now = cluster.clock.wallTime();
    const agesInDays = (audit: boolean): readonly number[] =>
      cluster.state
        .view()
        .events()
        .filter(
          ({ category, reason }) =>
            (category === Category.AUDIT) === audit && /create/i.test(reason),
        )
        .map(({ time }) => Math.round((now - timestampMs(time!)) / DAY_MS));
    const upTo = (days: number): readonly number[] =>
      Array.from({ length: days }, (_, index) => days - index);
    // Ages are whole days, so the event that is due today may already be removed.
    expect([upTo(10), upTo(9)]).toContainEqual(agesInDays(false));
    expect([upTo(20), upTo(19)]).toContainEqual(agesInDays(true));
    await cluster.complete(() => cluster.stopCoordinator());
  });
});

describe('client with very many calls', () => {
  it('does not displace audit records of other callers or of its own calls of other RPCs', async () => {
    let callerAddress = '10.0.0.1';
    const cluster = await startCluster(1, {
      retention: { auditBytes: 12_000 },
      callerAddress: () => callerAddress,
    });
    const { client } = cluster;
    const scale = (replicas: number) =>
      cluster.complete(() => client.scaleWorkload({ name: 'web', replicas }));
    await cluster.complete(() =>
      client.createWorkload({ name: 'web', spec: { command: ['serve'], replicas: 0 } }),
    );
    await scale(1);
    callerAddress = '10.0.0.2';
    await cluster.complete(() => client.cordonNode({ nodeId: 'node-1' }));
    for (let turn = 0; turn < 100; turn += 1) await scale(turn % 2);
    await cluster.advance(1_000, 100);
    const kept = new Map<string, number>();
    for (const { audit, reason } of auditEvents(cluster)) {
      const key = `${audit!.address} ${reason}`;
      kept.set(key, (kept.get(key) ?? 0) + 1);
    }
    expect([...kept.keys()]).toEqual([
      '10.0.0.1 EnrollNode',
      '10.0.0.1 CreateWorkload',
      '10.0.0.1 ScaleWorkload',
      '10.0.0.2 CordonNode',
      '10.0.0.2 ScaleWorkload',
    ]);
    expect(kept.get('10.0.0.2 ScaleWorkload')).toBeLessThan(60);
    await cluster.complete(() => cluster.stopCoordinator());
  });

  it('does not displace events of nodes by workload changes', async () => {
    const cluster = await startCluster(1, {
      retention: { eventBytes: 10_000, auditBytes: 10_000 },
    });
    const { client } = cluster;
    await cluster.complete(() =>
      client.createWorkload({ name: 'web', spec: { command: ['serve'], replicas: 0 } }),
    );
    for (let turn = 0; turn < 100; turn += 1) {
      await cluster.complete(() => client.scaleWorkload({ name: 'web', replicas: turn % 2 }));
    }
    await cluster.advance(1_000, 100);
    const reasons = cluster.state
      .view()
      .events()
      .filter(({ category }) => category === Category.MEMBERSHIP)
      .map(({ reason }) => reason);
    expect(reasons).toEqual(expect.arrayContaining(['NodeEnrolled', 'NodeJoined']));
    expect((await usageByKind(cluster)).get('event')!.bytes).toBeLessThan(25_000);
    await cluster.complete(() => cluster.stopCoordinator());
  });
});

describe('event watch after an id', () => {
  it('fails with OUT_OF_RANGE when events after the id were removed, and sends the next event otherwise', async () => {
    const cluster = await startCluster(1, { retention: { eventBytes: 10_000 } });
    const { client } = cluster;
    await cluster.complete(() =>
      client.createWorkload({ name: 'web', spec: { command: ['serve'], replicas: 0 } }),
    );
    const first = (await cluster.complete(() => client.listEvents({ pageSize: 1 }))).events[0]!.id;
    for (let turn = 0; turn < 60; turn += 1) {
      await cluster.complete(() => client.scaleWorkload({ name: 'web', replicas: turn % 2 }));
    }
    await cluster.advance(1_000, 100);
    const next = (request: { afterId: string; categories?: Category[] }): Promise<string> =>
      cluster.complete(async () => {
        for await (const { event } of client.watchEvents(request))
          return event?.reason ?? 'bookmark';
        return 'end';
      });
    await expect(next({ afterId: first })).rejects.toMatchObject({
      code: Code.OutOfRange,
      rawMessage: expect.stringMatching(
        /^events after \d+-\d+ are no longer stored: \d+-\d+ was removed; list the stored events, or watch without after_id$/,
      ) as string,
    });
    expect(await next({ afterId: first, categories: [Category.MEMBERSHIP] })).toBe('NodeEnrolled');
    const { events } = await cluster.complete(() =>
      client.listEvents({ pageSize: 2, newestFirst: true }),
    );
    expect(await next({ afterId: events[1]!.id })).toBe(events[0]!.reason);
    await cluster.complete(() => cluster.stopCoordinator());
  });
});
