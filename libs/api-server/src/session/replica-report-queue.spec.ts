import { create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { ReplicaReportSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { isSameRecord, mergeReport } from './merge-report.js';

const aRecord = (fields: object) =>
  create(ReplicaRecordSchema, {
    id: 'w-1',
    desiredRunning: true,
    phase: Phase.RUNNING,
    nodeId: 'node-1',
    ...fields,
  });
const aReport = (fields: object) => create(ReplicaReportSchema, { replicaId: 'w-1', ...fields });

describe('mergeReport', () => {
  it.each([
    {
      name: 'moves the phase forward',
      stored: { phase: Phase.ASSIGNED },
      reported: { phase: Phase.RUNNING, ready: true },
      expected: { phase: Phase.RUNNING, ready: true },
    },
    {
      name: 'never moves the phase back',
      stored: { phase: Phase.RUNNING },
      reported: { phase: Phase.STARTING },
      expected: { phase: Phase.RUNNING },
    },
    {
      name: 'sets the phase to STOPPED when a replica fails after a stop order',
      stored: { desiredRunning: false },
      reported: { phase: Phase.FAILED },
      expected: { phase: Phase.STOPPED, ready: false },
    },
    {
      name: 'sets the phase to FAILED when a replica fails without a stop order',
      stored: {},
      reported: { phase: Phase.FAILED, ready: true },
      expected: { phase: Phase.FAILED, ready: false },
    },
    {
      name: 'does not change a replica that has failed',
      stored: { phase: Phase.FAILED, desiredRunning: false },
      reported: { phase: Phase.FAILED },
      expected: { phase: Phase.FAILED },
    },
    {
      name: 'does not change a lost replica that is reported as running',
      stored: { phase: Phase.FAILED, desiredRunning: false, lost: true },
      reported: { phase: Phase.RUNNING, ready: true },
      expected: { phase: Phase.FAILED, ready: false },
    },
    {
      name: 'sets the phase of a lost replica to STOPPED when its end is reported',
      stored: { phase: Phase.FAILED, desiredRunning: false, lost: true },
      reported: { phase: Phase.STOPPED },
      expected: { phase: Phase.STOPPED },
    },
    {
      name: 'stores the reason why the last container ended',
      stored: { lastEndReason: 'exit code 1' },
      reported: {
        phase: Phase.RUNNING,
        lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed',
      },
      expected: { lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed' },
    },
    {
      name: 'keeps the stored reason when the report contains none',
      stored: { lastEndReason: 'exit code 1' },
      reported: { phase: Phase.RUNNING },
      expected: { lastEndReason: 'exit code 1' },
    },
    {
      name: 'stores at most 10 last lines of a failed container, truncated and without control characters',
      stored: { lastLines: ['older'] },
      reported: {
        phase: Phase.RUNNING,
        restarts: 1,
        lastLines: [
          ...Array.from({ length: 20 }, (_, index) => String(index)),
          `\u001b]0;x${'y'.repeat(300)}`,
        ],
      },
      expected: {
        lastLines: [
          ...Array.from({ length: 9 }, (_, index) => String(index + 11)),
          `␛]0;x${'y'.repeat(250)}…`,
        ],
      },
    },
    {
      name: 'removes the lines of the previous failure after another failure without output',
      stored: { restarts: 1, lastLines: ['older'] },
      reported: { phase: Phase.RUNNING, restarts: 2 },
      expected: { lastLines: [] },
    },
    {
      name: 'removes the lines of the previous failure after the final failure',
      stored: { restarts: 1, lastLines: ['older'] },
      reported: { phase: Phase.FAILED, restarts: 1 },
      expected: { lastLines: [] },
    },
    {
      name: 'keeps the stored lines when the report contains none',
      stored: { restarts: 1, lastLines: ['older'] },
      reported: { phase: Phase.RUNNING, restarts: 1, ready: true },
      expected: { lastLines: ['older'] },
    },
    {
      name: 'keeps the stored lines when the agent no longer has the replica',
      stored: { restarts: 1, lastLines: ['older'] },
      reported: { phase: Phase.FAILED },
      expected: { lastLines: ['older'] },
    },
    {
      name: 'stores the next start of a replica in back-off, as its agent reports the time',
      stored: {},
      reported: { phase: Phase.RUNNING, nextStartAt: timestampFromMs(5_000) },
      expected: { nextStartAt: timestampFromMs(5_000) },
    },
    {
      name: 'replaces the next start of the previous back-off',
      stored: { nextStartAt: timestampFromMs(5_000) },
      reported: { phase: Phase.RUNNING, restarts: 2, nextStartAt: timestampFromMs(9_000) },
      expected: { nextStartAt: timestampFromMs(9_000) },
    },
    {
      name: 'stores failed starts beside the restarts that contain them',
      stored: { restarts: 1 },
      reported: { phase: Phase.RUNNING, restarts: 3, failedStarts: 2 },
      expected: { restarts: 3, failedStarts: 2 },
    },
    {
      name: 'keeps the failed starts when an agent of an earlier version reports none',
      stored: { restarts: 3, failedStarts: 2 },
      reported: { phase: Phase.RUNNING, restarts: 4 },
      expected: { restarts: 4, failedStarts: 2 },
    },
    {
      name: 'keeps the failed starts when an agent could not store its last progress',
      stored: { restarts: 3, failedStarts: 2 },
      reported: { phase: Phase.RUNNING, restarts: 2, failedStarts: 1 },
      expected: { restarts: 3, failedStarts: 2 },
    },
    {
      name: 'keeps the failed starts when an agent counts from 0 after a downgrade and an upgrade',
      stored: { restarts: 4, failedStarts: 2 },
      reported: { phase: Phase.RUNNING, restarts: 5, failedStarts: 1 },
      expected: { restarts: 5, failedStarts: 2 },
    },
    {
      name: 'stores the failed starts of such an agent when there are more than before',
      stored: { restarts: 6, failedStarts: 2 },
      reported: { phase: Phase.RUNNING, restarts: 7, failedStarts: 3 },
      expected: { restarts: 7, failedStarts: 3 },
    },
    {
      name: 'stores failed starts up to the stored restarts when the agent reports fewer restarts',
      stored: { restarts: 5, failedStarts: 1 },
      reported: { phase: Phase.RUNNING, restarts: 2, failedStarts: 3 },
      expected: { restarts: 5, failedStarts: 3 },
    },
    {
      name: 'stores at most as many failed starts as restarts',
      stored: {},
      reported: { phase: Phase.RUNNING, restarts: 1, failedStarts: 7 },
      expected: { restarts: 1, failedStarts: 1 },
    },
  ])('$name', ({ stored, reported, expected }) => {
    const once = mergeReport(
      aRecord(stored),
      aReport(reported),
      1_000,
      /* confirmsStopLimit */ true,
    );
    expect(once).toMatchObject(expected);
    // The same report again changes nothing.
    expect(mergeReport(once, aReport(reported), 2_000, /* confirmsStopLimit */ true)).toEqual(once);
  });

  it.each([
    { name: 'when the start begins', reported: { phase: Phase.RUNNING, container: { pid: 2 } } },
    {
      name: 'when the replica has ended',
      reported: { phase: Phase.FAILED, nextStartAt: timestampFromMs(5_000) },
    },
  ])('removes the next start $name', ({ reported }) => {
    const stored = aRecord({ nextStartAt: timestampFromMs(5_000), container: { pid: 1 } });
    const merged = mergeReport(stored, aReport(reported), 1_000, /* confirmsStopLimit */ true);
    expect(merged).not.toHaveProperty('nextStartAt');
  });
});

describe('mergeReport of a replica without failed starts', () => {
  it.each([0, -1])('adds no field to the record when the agent reports %i', (failedStarts) => {
    const report = aReport({ phase: Phase.RUNNING, restarts: 2, failedStarts });
    const merged = mergeReport(aRecord({}), report, 1_000, /* confirmsStopLimit */ true);
    expect(merged).not.toHaveProperty('failedStarts');
  });
});

describe('isSameRecord', () => {
  const few = <Value>(...values: Value[]) =>
    fc.constantFrom<Value | undefined>(undefined, ...values);
  const arbReport = fc.record({
    phase: fc.constantFrom(Phase.STARTING, Phase.RUNNING),
    ready: fc.boolean(),
    restarts: few(1, 2),
    failedStarts: few(1, 2),
    endpoints: few([{ portName: 'http', port: 80 }], [{ portName: 'http', port: 81 }]),
    earlierContainerIds: few(['c0'], ['c0', 'c1']),
    container: few({ pid: 1 }, { pid: 2 }, { pid: 1, startedAt: timestampFromMs(5) }),
    lastExitCode: few(0, 1),
    lastEndReason: few('exit code 1'),
    lastLines: few(['a'], ['b']),
    nextStartAt: few(timestampFromMs(5), timestampFromMs(6)),
    imagePull: few({ sizeBytes: 1n }, { sizeBytes: 2n }),
  });

  it('agrees with the generic comparison, also about messages of equal content', () => {
    fc.assert(
      fc.property(arbReport, arbReport, fc.boolean(), (first, second, again) => {
        const merge = (record: ReplicaRecord, report: object): ReplicaRecord =>
          mergeReport(record, aReport(report), 1_000, /* confirmsStopLimit */ true);
        const stored = merge(aRecord({}), first);
        const next = merge(stored, again ? first : second);
        const expected = equals(ReplicaRecordSchema, stored, next);
        if (again) expect(expected).toBe(true);
        expect(isSameRecord(stored, next)).toBe(expected);
      }),
      { numRuns: 1_000 },
    );
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
      effect: 'changes',
    },
    {
      name: 'is no longer ready',
      report: { containerId: 'c1', ready: false },
      effect: 'changes',
    },
    {
      name: 'has ended',
      report: { containerId: 'c1', phase: Phase.FAILED },
      effect: 'changes',
    },
    {
      name: 'is ready with the same container',
      report: { containerId: 'c1', ready: true, restarts: 1 },
      effect: 'does not change',
    },
  ])('$effect the readiness guard when a ready replica $name', async ({ report, effect }) => {
    const before = bed.state.view().readinessGuard('w')?.revision;
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory([{ replicaId: 'w-0', workloadUid: 'w', phase: Phase.RUNNING, ...report }]);
    await bed.settle();
    expect(bed.replica('w-0').restarts).toBe(report.restarts ?? 0);
    expect(bed.state.view().readinessGuard('w')?.revision !== before).toBe(effect === 'changes');
  });

  it('ignores a report about a replica of another node', async () => {
    const agent = await bed.connectAgent('node-2');
    agent.sendInventory([{ replicaId: 'w-0', workloadUid: 'w', phase: Phase.FAILED }]);
    await bed.settle();
    expect(bed.replica('w-0')).toMatchObject({ phase: Phase.RUNNING, ready: true });
  });

  it('confirms a stop limit only by a report with the order that contains the limit', async () => {
    await bed.putReplica('w-1', {
      ...{ phase: Phase.RUNNING, orderRevision: 2n, stopAfterUnconfirmed: true },
    });
    const agent = await bed.connectAgent('node-1');
    const running = { replicaId: 'w-1', workloadUid: 'w', phase: Phase.RUNNING };
    agent.sendInventory([{ ...running, orderRevision: 1n, reason: 'older order' }]);
    await bed.settle();
    expect(bed.replica('w-1')).toMatchObject({ reason: 'older order', stopAfterUnconfirmed: true });
    agent.sendReport({ ...running, orderRevision: 2n, reason: 'this order' });
    await bed.settle();
    expect(bed.replica('w-1')).toMatchObject({ reason: 'this order', stopAfterUnconfirmed: false });
  });

  it('sets readySince only when another container is ready, and removes it when the replica is not ready', async () => {
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
