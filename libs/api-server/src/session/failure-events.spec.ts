import { create } from '@bufbuild/protobuf';
import {
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
      name: 'could not be started again when only failed starts were added',
      added: { restarts: 3, failedStarts: 2 },
      message: `replica w-1 could not be started: ${REASON}`,
    },
    {
      name: 'ended when a container ended too',
      added: { restarts: 3, failedStarts: 1 },
      message: `replica w-1 ended (not started: ${REASON}) and was restarted`,
    },
  ])('says that a replica that has run $name', async ({ added, message }) => {
    await open(RestartMode.ALWAYS);
    const report = {
      replicaId: 'w-1',
      phase: Phase.RUNNING,
      reason: REASON,
      lastEndReason: `not started: ${REASON}`,
    };
    reports.enqueue('node-1', create(ReplicaReportSchema, { ...report, restarts: 1 }));
    await reports.flushed('node-1');
    reports.enqueue('node-1', create(ReplicaReportSchema, { ...report, ...added }));
    await reports.flushed('node-1');
    expect([...state.view().events()].at(-1)).toMatchObject({ message });
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
