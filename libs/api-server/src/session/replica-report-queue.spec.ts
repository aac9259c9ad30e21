import { create } from '@bufbuild/protobuf';
import { ReplicaReportSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
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
