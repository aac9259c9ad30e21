import { create } from '@bufbuild/protobuf';
import {
  formatNotStarted,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as RestartMode,
} from '@cloudless/api';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { ReplicaReportQueue } from './replica-report-queue.js';

const REASON = 'exec: "run": permission denied';

let state: ClusterState;
let reports: ReplicaReportQueue;

async function open(policy: RestartMode): Promise<void> {
  const clock = new ManualClock();
  const random = createSeededRandom(1);
  const store = createMemoryStateStore({ clock });
  state = await openClusterState({ store, clock, random, log: silentLog, holder: 'test' });
  const spec = { restart: { policy } };
  const workload = create(WorkloadRecordSchema, {
    uid: 'w',
    namespace: 'default',
    name: 'web',
    version: 1,
    spec,
  });
  const replica = {
    id: 'w-1',
    uid: 'w',
    sequence: 1n,
    version: 1,
    nodeId: 'node-1',
    desiredRunning: true,
  };
  await state.commit(
    state
      .transaction()
      .put('workload', 'w', workload)
      .createReplica(create(ReplicaRecordSchema, { ...replica, phase: Phase.ASSIGNED })),
  );
  const deps = { state, clock, random, log: silentLog };
  reports = new ReplicaReportQueue(
    deps as unknown as ConstructorParameters<typeof ReplicaReportQueue>[0],
  );
}

afterEach(async () => {
  await reports.close();
  await state.close();
});

describe('event of a replica that could not be started', () => {
  it('contains the reason of the failure when the restart policy is NEVER', async () => {
    await open(RestartMode.NEVER);
    const report = { replicaId: 'w-1', phase: Phase.FAILED, reason: `${REASON}; never restarted` };
    reports.enqueue('node-1', create(ReplicaReportSchema, report));
    await reports.flushed('node-1');
    expect([...state.view().events()]).toMatchObject([
      {
        reason: 'ReplicaFailed',
        replicaId: 'w-1',
        message: `replica w-1 failed: ${REASON}; never restarted`,
      },
    ]);
  });

  it('says that the replica could not be started when the start is retried', async () => {
    await open(RestartMode.ON_FAILURE);
    const reason = `${REASON}, restarting in 100 ms`;
    const report = { replicaId: 'w-1', phase: Phase.STARTING, restarts: 1, reason };
    reports.enqueue('node-1', create(ReplicaReportSchema, report));
    await reports.flushed('node-1');
    expect([...state.view().events()]).toMatchObject([
      { reason: 'ReplicaRestarted', message: `replica w-1 could not be started: ${reason}` },
    ]);
  });

  it.each([
    {
      name: 'could not be started again after a failed start',
      next: { restarts: 2, failedStarts: 1, lastEndReason: formatNotStarted(REASON) },
      message: `replica w-1 could not be started: ${REASON}`,
    },
    {
      name: 'could not be started when its agent is of a version without failed starts',
      next: { restarts: 2, lastEndReason: formatNotStarted(REASON) },
      message: `replica w-1 could not be started: ${REASON}`,
    },
    {
      name: 'could not be started when a container ended before, in the same report',
      next: { restarts: 3, failedStarts: 1, lastEndReason: formatNotStarted(REASON) },
      message: `replica w-1 could not be started: ${REASON}`,
    },
    {
      name: 'ended when a container ended after a failed start, in the same report',
      next: { restarts: 3, failedStarts: 1, lastEndReason: 'exit code 1' },
      message: 'replica w-1 ended (exit code 1) and was restarted',
    },
    {
      name: 'ended when a coordinator of an earlier version stored no failed starts',
      next: { restarts: 2, failedStarts: 1, lastEndReason: 'exit code 1' },
      message: 'replica w-1 ended (exit code 1) and was restarted',
    },
  ])('says that a replica that has run $name', async ({ next, message }) => {
    await open(RestartMode.ALWAYS);
    const report = { replicaId: 'w-1', phase: Phase.RUNNING, reason: 'not ready' };
    const first = { restarts: 1, lastEndReason: 'exit code 1' };
    reports.enqueue('node-1', create(ReplicaReportSchema, { ...report, ...first }));
    await reports.flushed('node-1');
    reports.enqueue('node-1', create(ReplicaReportSchema, { ...report, ...next }));
    await reports.flushed('node-1');
    expect([...state.view().events()].at(-1)).toMatchObject({ message });
  });

  it('is the only event when a later start succeeds and the replica is ready in the same report', async () => {
    await open(RestartMode.ALWAYS);
    const failedStart = { restarts: 1, failedStarts: 1, lastEndReason: formatNotStarted(REASON) };
    const report = { replicaId: 'w-1', phase: Phase.RUNNING, ready: true, ...failedStart };
    reports.enqueue('node-1', create(ReplicaReportSchema, report));
    await reports.flushed('node-1');
    expect([...state.view().events()]).toMatchObject([{ reason: 'ReplicaRestarted' }]);
  });

  it('is left to the workload reconciler when the failed replica is replaced', async () => {
    await open(RestartMode.ALWAYS);
    const report = {
      replicaId: 'w-1',
      phase: Phase.FAILED,
      reason: `${REASON}; gave up after 1 retry`,
    };
    reports.enqueue('node-1', create(ReplicaReportSchema, report));
    await reports.flushed('node-1');
    expect([...state.view().events()]).toEqual([]);
  });
});
