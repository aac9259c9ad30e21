import { create } from '@bufbuild/protobuf';
import { ReplicaReportSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { mergeReport } from './replica-report-queue.js';

const record = (fields: object) =>
  create(ReplicaRecordSchema, {
    id: 'w-1',
    desiredRunning: true,
    phase: Phase.RUNNING,
    nodeId: 'node-1',
    ...fields,
  });
const report = (fields: object) => create(ReplicaReportSchema, { replicaId: 'w-1', ...fields });

describe('mergeReport', () => {
  it.each([
    {
      name: 'moves the phase forward',
      was: { phase: Phase.ASSIGNED },
      says: { phase: Phase.RUNNING, ready: true },
      is: { phase: Phase.RUNNING, ready: true },
    },
    {
      name: 'never moves the phase back',
      was: { phase: Phase.RUNNING },
      says: { phase: Phase.STARTING },
      is: { phase: Phase.RUNNING },
    },
    {
      name: 'sets the phase to stopped for any end after a stop order',
      was: { desiredRunning: false },
      says: { phase: Phase.FAILED },
      is: { phase: Phase.STOPPED, ready: false },
    },
    {
      name: 'keeps the reported end phase without a stop order',
      was: {},
      says: { phase: Phase.FAILED, ready: true },
      is: { phase: Phase.FAILED, ready: false },
    },
    {
      name: 'does not change a replica that has failed',
      was: { phase: Phase.FAILED, desiredRunning: false },
      says: { phase: Phase.FAILED },
      is: { phase: Phase.FAILED },
    },
    {
      name: 'does not revive a lost replica by a report that it runs',
      was: { phase: Phase.FAILED, desiredRunning: false, lost: true },
      says: { phase: Phase.RUNNING, ready: true },
      is: { phase: Phase.FAILED, ready: false },
    },
    {
      name: 'sets a lost replica to stopped when its end is reported',
      was: { phase: Phase.FAILED, desiredRunning: false, lost: true },
      says: { phase: Phase.STOPPED },
      is: { phase: Phase.STOPPED },
    },
    {
      name: 'stores the reason why the last container ended',
      was: { lastEndReason: 'exit code 1' },
      says: {
        phase: Phase.RUNNING,
        lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed',
      },
      is: { lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed' },
    },
    {
      name: 'keeps the stored end when the report contains none',
      was: { lastEndReason: 'exit code 1' },
      says: { phase: Phase.RUNNING },
      is: { lastEndReason: 'exit code 1' },
    },
    {
      name: 'stores the last lines of a failed container within the limits',
      was: { lastLines: ['older'] },
      says: {
        phase: Phase.RUNNING,
        restarts: 1,
        lastLines: [
          ...Array.from({ length: 20 }, (_, index) => String(index)),
          `\u001b]0;x${'y'.repeat(300)}`,
        ],
      },
      is: {
        lastLines: [
          ...Array.from({ length: 9 }, (_, index) => String(index + 11)),
          `␛]0;x${'y'.repeat(250)}…`,
        ],
      },
    },
    {
      name: 'removes the lines of the previous failure after another failure without output',
      was: { restarts: 1, lastLines: ['older'] },
      says: { phase: Phase.RUNNING, restarts: 2 },
      is: { lastLines: [] },
    },
    {
      name: 'removes the lines of the previous failure after the final failure',
      was: { restarts: 1, lastLines: ['older'] },
      says: { phase: Phase.FAILED, restarts: 1 },
      is: { lastLines: [] },
    },
    {
      name: 'keeps the stored lines when the report contains none',
      was: { restarts: 1, lastLines: ['older'] },
      says: { phase: Phase.RUNNING, restarts: 1, ready: true },
      is: { lastLines: ['older'] },
    },
    {
      name: 'keeps the stored lines when the agent no longer has the replica',
      was: { restarts: 1, lastLines: ['older'] },
      says: { phase: Phase.FAILED },
      is: { lastLines: ['older'] },
    },
  ])('$name', ({ was, says, is }) => {
    const once = mergeReport(record(was), report(says), 1_000, true);
    expect(once).toMatchObject(is);
    expect(mergeReport(once, report(says), 2_000, true)).toEqual(once); // twice is as good as once
  });
});

describe('ReplicaReportQueue', () => {
  let bed: ApiTestBed;
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    await bed.putReplica('w-0', { phase: Phase.RUNNING, ready: true, containerId: 'c1' });
  });
  afterEach(() => bed.stop());

  it.each([
    {
      name: 'is ready with another container',
      report: { containerId: 'c2', ready: true },
      changes: true,
    },
    { name: 'is no longer ready', report: { containerId: 'c1', ready: false }, changes: true },
    { name: 'has ended', report: { containerId: 'c1', phase: Phase.FAILED }, changes: true },
    {
      name: 'is ready with the same container',
      report: { containerId: 'c1', ready: true, restarts: 1 },
      changes: false,
    },
  ])(
    'changes the readiness guard ($changes) when a ready replica $name',
    async ({ report, changes }) => {
      const before = bed.state.view().readinessGuard('w')?.revision;
      const agent = await bed.connectAgent('node-1');
      agent.sendInventory([
        { replicaId: 'w-0', workloadUid: 'w', phase: Phase.RUNNING, ...report },
      ]);
      await bed.settle();
      expect(bed.replica('w-0').restarts).toBe(report.restarts ?? 0);
      expect(bed.state.view().readinessGuard('w')?.revision !== before).toBe(changes);
    },
  );

  it('ignores a report about a replica of another node', async () => {
    const agent = await bed.connectAgent('node-2');
    agent.sendInventory([{ replicaId: 'w-0', workloadUid: 'w', phase: Phase.FAILED }]);
    await bed.settle();
    expect(bed.replica('w-0')).toMatchObject({ phase: Phase.RUNNING, ready: true });
  });

  it('keeps readySince while the same container stays ready, and sets it for another container', async () => {
    const agent = await bed.connectAgent('node-1');
    const ready = { replicaId: 'w-0', workloadUid: 'w', phase: Phase.RUNNING, ready: true };
    await bed.clock.advance(10_000);
    agent.sendInventory([{ ...ready, containerId: 'c1', reason: 'x' }]);
    await bed.settle();
    expect(bed.replica('w-0').readySince).toBeUndefined();
    agent.sendReport({ ...ready, containerId: 'c2' });
    await bed.settle();
    expect(Number(bed.replica('w-0').readySince?.seconds) * 1_000).toBe(bed.clock.wallTime());
    agent.sendReport({ ...ready, containerId: 'c2', ready: false });
    await bed.settle();
    expect(bed.replica('w-0').readySince).toBeUndefined();
  });
});
