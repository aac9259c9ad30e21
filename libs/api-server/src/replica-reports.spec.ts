import { create } from '@bufbuild/protobuf';
import { ReplicaReportSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { mergeReport } from './replica-reports.js';

const record = (fields: object) =>
  create(ReplicaRecordSchema, {
    id: 'w-1',
    desiredRunning: true,
    phase: Phase.RUNNING,
    nodeId: 'node-1',
    ...fields,
  });
const report = (fields: object) => create(ReplicaReportSchema, { replicaId: 'w-1', ...fields });

describe('a report', () => {
  it.each([
    {
      name: 'moves the phase forward',
      was: { phase: Phase.ASSIGNED },
      says: { phase: Phase.RUNNING, ready: true },
      is: { phase: Phase.RUNNING, ready: true },
    },
    {
      name: 'never moves it back',
      was: { phase: Phase.RUNNING },
      says: { phase: Phase.STARTING },
      is: { phase: Phase.RUNNING },
    },
    {
      name: 'of any end confirms a stop',
      was: { desiredRunning: false },
      says: { phase: Phase.FAILED },
      is: { phase: Phase.STOPPED, ready: false },
    },
    {
      name: 'of an end nobody asked for says how it ended',
      was: {},
      says: { phase: Phase.FAILED, ready: true },
      is: { phase: Phase.FAILED, ready: false },
    },
    {
      name: 'does not touch one that has failed and is kept to be looked at',
      was: { phase: Phase.FAILED, desiredRunning: false },
      says: { phase: Phase.FAILED },
      is: { phase: Phase.FAILED },
    },
    {
      name: 'of life does not bring a lost one back',
      was: { phase: Phase.FAILED, desiredRunning: false, lost: true },
      says: { phase: Phase.RUNNING, ready: true },
      is: { phase: Phase.FAILED, ready: false },
    },
    {
      name: 'of its end confirms that a lost one is gone',
      was: { phase: Phase.FAILED, desiredRunning: false, lost: true },
      says: { phase: Phase.STOPPED },
      is: { phase: Phase.STOPPED },
    },
    {
      name: 'says why the last container ended',
      was: { lastEndReason: 'exit code 1' },
      says: {
        phase: Phase.RUNNING,
        lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed',
      },
      is: { lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed' },
    },
    {
      name: 'that knows of no end leaves what was known',
      was: { lastEndReason: 'exit code 1' },
      says: { phase: Phase.RUNNING },
      is: { lastEndReason: 'exit code 1' },
    },
    {
      name: 'brings the last lines of what failed, bounded: an agent may say anything',
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
      name: 'of another failure without a word drops the lines of the one before',
      was: { restarts: 1, lastLines: ['older'] },
      says: { phase: Phase.RUNNING, restarts: 2 },
      is: { lastLines: [] },
    },
    {
      name: 'of the last failure does so too',
      was: { restarts: 1, lastLines: ['older'] },
      says: { phase: Phase.FAILED, restarts: 1 },
      is: { lastLines: [] },
    },
    {
      name: 'without lines leaves those that were known',
      was: { restarts: 1, lastLines: ['older'] },
      says: { phase: Phase.RUNNING, restarts: 1, ready: true },
      is: { lastLines: ['older'] },
    },
    {
      name: 'that a replica is not known any more leaves them too',
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
