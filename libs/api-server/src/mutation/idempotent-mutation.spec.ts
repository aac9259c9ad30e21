import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
});
afterEach(() => bed.stop());

const spec = { command: ['serve'], replicas: 2 };

describe('runIdempotent', () => {
  it('returns the stored response and changes nothing when a request id is repeated', async () => {
    const first = await bed.client.createWorkload({ name: 'web', spec, requestId: 'r1' });
    const { revision } = bed.state.view();
    const second = await bed.client.createWorkload({ name: 'web', spec, requestId: 'r1' });
    expect(second).toEqual(first);
    expect([...bed.state.view().workloads()]).toHaveLength(1);
    expect(bed.events('WorkloadCreated')).toHaveLength(1);
    // Only the audit record of the repeated call is new.
    expect(bed.state.view().revision).toBe(revision + 1n);
    expect(bed.auditRecords).toEqual(['CreateWorkload ok', 'CreateWorkload unchanged']);
  });

  it('executes two concurrent calls with the same request id once', async () => {
    const call = () => bed.client.scaleWorkload({ name: 'web', replicas: 5, requestId: 'r2' });
    await bed.client.createWorkload({ name: 'web', spec });
    const [one, other] = await Promise.all([call(), call()]);
    expect(one).toEqual(other);
    expect(one?.generation).toBe(2n);
    expect(bed.events('WorkloadScaled')).toHaveLength(1);
  });

  it('executes calls without a request id each time', async () => {
    await bed.client.createWorkload({ name: 'web', spec });
    await expect(bed.client.createWorkload({ name: 'web', spec })).rejects.toThrow(
      'already exists',
    );
  });

  it.each([
    {
      name: 'another method',
      call: () => bed.client.deleteWorkload({ name: 'web', requestId: 'r' }),
    },
    {
      name: 'another body',
      call: () => bed.client.scaleWorkload({ name: 'web', replicas: 4, requestId: 'r' }),
    },
  ])('rejects a request id that was used for $name', async ({ call }) => {
    await bed.client.createWorkload({ name: 'web', spec });
    await bed.client.scaleWorkload({ name: 'web', replicas: 3, requestId: 'r' });
    await expect(call()).rejects.toThrow(
      'request_id: was used for another ScaleWorkload within the last hour',
    );
    expect((await bed.client.getWorkload({ name: 'web' })).spec?.replicas).toBe(3);
  });

  it('returns the stored response to a retry of a call that changed nothing', async () => {
    await bed.client.createWorkload({ name: 'web', spec });
    const call = () => bed.client.scaleWorkload({ name: 'web', replicas: 2, requestId: 'r3' });
    const first = await call();
    await bed.client.scaleWorkload({ name: 'web', replicas: 7 });
    expect(await call()).toMatchObject({ generation: first.generation, spec: { replicas: 2 } });
    expect(bed.state.view().request('r3')?.value.method).toBe('ScaleWorkload');
  });

  it('stores a response without its replicas', async () => {
    await bed.putReplica('w-0');
    const call = () => bed.client.deleteWorkload({ name: 'web-w', requestId: 'r4' });
    expect((await call()).status?.replicas).toHaveLength(1);
    expect((await call()).status?.replicas).toEqual([]);
  });

  it('stores method, time and workload id with the response', async () => {
    const { uid } = await bed.client.createWorkload({ name: 'web', spec, requestId: 'r5' });
    expect(bed.state.view().request('r5')?.value).toMatchObject({
      method: 'CreateWorkload',
      workloadUid: uid,
      at: { seconds: BigInt(bed.clock.wallTime()) / 1_000n },
    });
    await bed.putNode('node-1');
    await bed.client.cordonNode({ nodeId: 'node-1', requestId: 'r6' });
    expect(bed.state.view().request('r6')?.value.workloadUid).toBe('');
  });

  it('stores no response when a call fails, so that a retry is executed', async () => {
    const call = () => bed.client.scaleWorkload({ name: 'web', replicas: 3, requestId: 'r7' });
    await expect(call()).rejects.toThrow('not found');
    await bed.client.createWorkload({ name: 'web', spec });
    expect((await call()).spec?.replicas).toBe(3);
  });

  it('applies all concurrent changes of one workload, one after the other', async () => {
    await bed.client.createWorkload({ name: 'web', spec });
    const changes = Array.from({ length: 20 }, (_, index) =>
      bed.client.updateWorkload({ name: 'web', spec: { env: { [`A${index}`]: '1' } } }),
    );
    await Promise.all(changes);
    expect((await bed.client.getWorkload({ name: 'web' })).generation).toBe(21n);
    expect(bed.events('WorkloadUpdated')).toHaveLength(20);
  });

  it('decides again after a conflict with another writer', async () => {
    await bed.client.createWorkload({ name: 'web', spec });
    const workload = bed.state.view().workloadByName('default', 'web');
    if (workload === undefined) throw new Error('no workload');
    const [, scaled] = await Promise.all([
      bed.state.commit(bed.state.transaction().put('workload', workload.value.uid, workload.value)),
      bed.client.scaleWorkload({ name: 'web', replicas: 9 }),
    ]);
    expect(scaled.spec?.replicas).toBe(9);
  });

  it.each([
    {
      name: 'a workload at another generation than the expected one',
      call: { expectedGeneration: 7n },
      says: 'at generation 1, not 7',
    },
    {
      name: 'a missing workload',
      call: { name: 'other' },
      says: 'workload "default/other" not found',
    },
  ])('rejects a change of $name', async ({ call, says }) => {
    await bed.client.createWorkload({ name: 'web', spec });
    await expect(bed.client.scaleWorkload({ name: 'web', replicas: 3, ...call })).rejects.toThrow(
      says,
    );
  });

  it('commits the change together with its audit record as the cause of its events', async () => {
    await bed.client.createWorkload({ name: 'web', spec, requestId: 'r8' });
    const [audit, created] = bed.events();
    expect(audit).toMatchObject({ reason: 'CreateWorkload', requestId: 'r8', workload: 'web' });
    expect(created).toMatchObject({
      reason: 'WorkloadCreated',
      causeId: audit?.id,
      requestId: 'r8',
    });
    const view = bed.state.view();
    expect(view.event(audit?.id ?? '')?.revision).toBe(view.event(created?.id ?? '')?.revision);
  });
});
