import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  await bed.client.createWorkload({ name: 'web', spec: { command: ['one'] } });
});
afterEach(() => bed.stop());

const HOUR_MS = 3_600_000;
const scale = (replicas: number) => ({
  change: { case: 'scale' as const, value: { name: 'web', replicas } },
});

describe('PlanHandlers', () => {
  it('changes the workload only when a plan is executed, and executes a plan once', async () => {
    const { id } = await bed.client.createPlan({ changes: [scale(5)] });
    expect((await bed.client.getWorkload({ name: 'web' })).generation).toBe(1n);
    const { workloads } = await bed.client.executePlan({ id });
    expect(workloads[0]?.spec?.replicas).toBe(5);
    expect((await bed.client.getPlan({ id })).executedAt).toBeDefined();
    await expect(bed.client.executePlan({ id })).rejects.toThrow('was already executed at');
  });

  it('rejects the execution of a plan whose outcome has changed since its creation', async () => {
    const { id } = await bed.client.createPlan({ changes: [scale(5)] });
    await bed.client.scaleWorkload({ name: 'web', replicas: 3 });
    await expect(bed.client.executePlan({ id })).rejects.toThrow(
      'is outdated: default/web: generation 1 was planned, it is 2 now; create a new plan',
    );
  });

  it('rejects an unknown plan as not found, and a plan after one hour as expired', async () => {
    await expect(bed.client.getPlan({ id: '0'.repeat(16) })).rejects.toThrow('not found');
    const { id } = await bed.client.createPlan({ changes: [scale(5)] });
    await bed.clock.advance(HOUR_MS - 1);
    expect((await bed.client.getPlan({ id })).id).toBe(id);
    await bed.clock.advance(1);
    await expect(bed.client.executePlan({ id })).rejects.toThrow('expired at');
  });

  it('rejects a plan with two changes of one workload, and a plan with a request id in a change', async () => {
    await expect(bed.client.createPlan({ changes: [scale(1), scale(2)] })).rejects.toThrow(
      'at most one change of each workload and node',
    );
    const change = { case: 'scale' as const, value: { name: 'web', replicas: 1, requestId: 'r' } };
    await expect(bed.client.createPlan({ changes: [{ change }] })).rejects.toThrow('request_id');
  });
});
