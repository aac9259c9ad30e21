import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Event_Category as Category, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import {
  EndpointRecordSchema,
  PlanRecordSchema,
  RequestRecordSchema,
  ServiceAddressRecordSchema,
  ServiceRecordSchema,
} from '@cloudless/api/store';
import { Janitor } from './janitor.js';
import type { RetentionLimits } from './retention.js';
import { TestBed } from './testing/test-bed.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

let bed: TestBed;

beforeEach(async () => {
  bed = await TestBed.open();
});
afterEach(() => bed.close());

const start = (retention: Partial<RetentionLimits> = {}): Janitor =>
  bed.use(new Janitor(bed.dependencies({ retention })));
const toTimeAgo = (ms: number) => timestampFromMs(bed.clock.wallTime() - ms);

describe('Janitor for tombstones', () => {
  const addTombstone = (ageMs: number): Promise<void> =>
    bed.addReplicas(1, () => ({
      lost: true,
      lostAt: toTimeAgo(ageMs),
      phase: Phase.FAILED,
      ready: false,
      desiredRunning: false,
    }));

  it('deletes a tombstone after 30 days', async () => {
    await addTombstone(30 * DAY_MS - 5 * MINUTE_MS);
    start();
    await bed.advance(4 * MINUTE_MS);
    expect(bed.replicas()).toHaveLength(1);
    await bed.advance(3 * MINUTE_MS);
    expect(bed.replicas()).toEqual([]);
  });

  it('keeps a replica that is not lost', async () => {
    await bed.addReplicas(1, () => ({ lostAt: toTimeAgo(90 * DAY_MS) }));
    start();
    await bed.advance(2 * MINUTE_MS);
    expect(bed.replicas()).toHaveLength(1);
  });

  it('keeps a tombstone that changes between plan and commit', async () => {
    await addTombstone(40 * DAY_MS);
    bed.beforeNextCommit(() => bed.changeReplica('web-1', { lostAt: toTimeAgo(0) }));
    start();
    await bed.advance(5 * MINUTE_MS);
    expect(bed.replicas()).toHaveLength(1);
  });
});

describe('Janitor for request results and plans', () => {
  const putRequest = (id: string, ageMs: number) =>
    bed.state.commitObserved(
      bed.state
        .transaction()
        .put('request', id, create(RequestRecordSchema, { method: 'x', at: toTimeAgo(ageMs) })),
    );
  const requests = () => [...bed.state.view().requests()].map(([id]) => id);

  it('deletes request results after an hour', async () => {
    await putRequest('old', HOUR_MS + MINUTE_MS);
    await putRequest('new', HOUR_MS - 5 * MINUTE_MS);
    start();
    await bed.advance(MINUTE_MS);
    expect(requests()).toEqual(['new']);
    await bed.advance(6 * MINUTE_MS);
    expect(requests()).toEqual([]);
  });

  it('deletes the oldest request results beyond the byte limit', async () => {
    for (let index = 0; index < 10; index += 1) await putRequest(`r${index}`, (10 - index) * 1_000);
    const bytes = [...bed.state.view().requests()].reduce(
      (sum, [, { bytes = 0 }]) => sum + bytes,
      0,
    );
    start({ requestBytes: bytes / 2 });
    await bed.advance(MINUTE_MS);
    expect(requests()).toEqual(['r5', 'r6', 'r7', 'r8', 'r9']);
  });

  it('deletes a plan when it expires', async () => {
    const plan = create(PlanRecordSchema, {
      plan: { id: 'p', expiresAt: timestampFromMs(bed.clock.wallTime() + 5 * MINUTE_MS) },
    });
    await bed.state.commitObserved(bed.state.transaction().put('plan', 'p', plan));
    start();
    await bed.advance(4 * MINUTE_MS);
    expect([...bed.state.view().plans()]).toHaveLength(1);
    await bed.advance(2 * MINUTE_MS);
    expect([...bed.state.view().plans()]).toEqual([]);
  });
});

describe('Janitor for the network', () => {
  it('deletes addresses an hour after their service, and endpoints of deleted services', async () => {
    const releasedAt = toTimeAgo(HOUR_MS - 5 * MINUTE_MS);
    const service = create(ServiceRecordSchema, { namespace: 'a', name: 'web', uid: 'new' });
    const transaction = bed.state
      .transaction()
      .put('service', 'a/web', service)
      .put('serviceip', '10.96.0.20', create(ServiceAddressRecordSchema, { serviceUid: 'new' }))
      .put('serviceip', '10.96.0.21', create(ServiceAddressRecordSchema, { releasedAt }));
    for (const serviceUid of ['old', 'new'])
      transaction.put(
        'endpoint',
        `a/web/${serviceUid}`,
        create(EndpointRecordSchema, { serviceUid }),
      );
    await bed.state.commit(transaction);
    start();
    await bed.advance(4 * MINUTE_MS);
    const listIds = () => [
      ...[...bed.state.view().serviceAddresses()].map(([id]) => id),
      ...[...bed.state.view().externalEndpoints()].map(([id]) => id),
    ];
    expect(listIds()).toEqual(['10.96.0.20', '10.96.0.21', 'a/web/new']);
    await bed.advance(3 * MINUTE_MS);
    expect(listIds()).toEqual(['10.96.0.20', 'a/web/new']);
  });
});

describe('Janitor for events', () => {
  const addEvents = async (count: number, category = Category.ROLLOUT): Promise<void> => {
    for (let index = 0; index < count; index += 1)
      await bed.state.commitObserved(
        bed.state.transaction().event({ reason: 'Test', message: `${index}`, category }),
      );
  };

  it('deletes events after eventMs and records the newest deleted event of each category', async () => {
    await addEvents(2);
    start({ eventMs: HOUR_MS });
    await bed.advance(59 * MINUTE_MS);
    const [, second] = bed.events('Test');
    expect(second).toBeDefined();
    await addEvents(1);
    await bed.advance(5 * MINUTE_MS);
    expect(bed.events('Test')).toHaveLength(1);
    expect(bed.state.view().removedEvents()?.value.newestByCategory).toEqual({
      [Category.ROLLOUT]: second?.id,
    });
  });

  it('deletes audit records after auditMs, independent of other events', async () => {
    await addEvents(1);
    await addEvents(1, Category.AUDIT);
    start({ eventMs: HOUR_MS, auditMs: 3 * HOUR_MS });
    await bed.advance(2 * HOUR_MS);
    expect(bed.events('Test').map(({ category }) => category)).toEqual([Category.AUDIT]);
    await bed.advance(2 * HOUR_MS);
    expect(bed.events('Test')).toEqual([]);
  });

  it('sweeps early when events exceed their byte limit by an eighth', async () => {
    start({ eventBytes: 2_000 });
    await bed.advance(1_000);
    await addEvents(200);
    await bed.advance(100);
    const bytes = bed
      .events('Test')
      .reduce((sum, { id }) => sum + (bed.state.view().event(id)?.bytes ?? 0), 0);
    expect(bytes).toBeLessThanOrEqual(2_250);
    expect(bytes).toBeGreaterThan(500);
  });

  it('looks at no other records than the events when it sweeps them early', async () => {
    start({ eventBytes: 2_000 });
    await bed.advance(1_000);
    const view = bed.state.view();
    const lostReplicas = view.lostReplicas.bind(view);
    let looks = 0;
    view.lostReplicas = () => {
      looks += 1;
      return lostReplicas();
    };
    await addEvents(200);
    await bed.advance(100);
    expect(bed.events('Test').length).toBeLessThan(40);
    expect(looks).toBe(0);
    await bed.advance(MINUTE_MS);
    expect(looks).toBe(1);
  });

  it('deletes 200 due events in commits of at most 90 deletions', async () => {
    await addEvents(200);
    const sizes = bed.recordCommitSizes();
    await bed.advance(2 * HOUR_MS);
    start({ eventMs: HOUR_MS });
    await bed.advance(1_000);
    expect(bed.events('Test')).toEqual([]);
    expect(Math.max(...sizes)).toBe(91);
  });

  it('deletes nothing while the store is rolled back', async () => {
    await addEvents(1);
    bed.state.reportNewerState({ nodeId: 'node-1', epoch: 9n, orderRevision: 0n });
    await bed.advance(2 * HOUR_MS);
    start({ eventMs: HOUR_MS });
    await bed.advance(MINUTE_MS);
    expect(bed.events('Test')).toHaveLength(1);
  });
});
