import { create } from '@bufbuild/protobuf';
import { ManualClock } from '@cloudless/base/testing';
import {
  LogEntrySchema,
  ReplicaStatus_Phase,
  ReplicaStatusSchema,
  RolloutSchema,
  RolloutStatusSchema,
  Rollout_Strategy,
  RolloutStatus_Phase,
  WatchWorkloadsResponse_Kind as Kind,
  WorkloadStatus_Phase,
} from '@cloudless/api';
import type { WatchWorkloadsRequest, Workload } from '@cloudless/api';
import { NOW_MS, aWorkload, runCli } from '../testing/run-cli.js';
import type { CliResult, FakeCoordinator } from '../testing/run-cli.js';
import { FAILURE, aRollout, createWatch } from '../testing/a-rollout.js';
import { judgeWorkload } from './judge-workload.js';

type Status = NonNullable<Parameters<typeof aWorkload>[0]>['status'];
const judge = (status: Status): unknown => judgeWorkload(aWorkload({ status: status ?? {} }), 3n);
/** Creates a status with a rollout in this phase. */
const aRolloutStatus = (phase: RolloutStatus_Phase, reason = ''): Status => ({
  rollout: create(RolloutStatusSchema, { phase, reason }),
});
/** Creates a status with one replica that has no node. */
const aPendingStatus = (reason: string): Status => ({
  phase: WorkloadStatus_Phase.SCHEDULING,
  readyReplicas: 1,
  totalReplicas: 2,
  reason,
  replicas: [
    create(ReplicaStatusSchema, { id: 'x-1', phase: ReplicaStatus_Phase.PENDING, reason }),
  ],
});

const lostReplica = create(ReplicaStatusSchema, {
  id: 'aa-3',
  nodeId: 'n3',
  phase: ReplicaStatus_Phase.FAILED,
  mayStillRun: true,
});

describe('judgeWorkload', () => {
  it.each<{ name: string; status: Status; expected: unknown }>([
    { name: 'ready', status: {}, expected: { kind: 'done', text: '2 of 2 ready' } },
    {
      name: 'changed but not observed',
      status: { observedGeneration: 2n },
      expected: { kind: 'waiting', text: 'the change has not been observed yet', unplaced: false },
    },
    {
      name: 'observed at a newer generation',
      status: { observedGeneration: 9n },
      expected: { kind: 'done', text: '2 of 2 ready' },
    },
    {
      name: 'missing a ready replica',
      status: { readyReplicas: 1 },
      expected: { kind: 'waiting', text: '1 of 2 ready', unplaced: false },
    },
    {
      name: 'running an old replica',
      status: { totalReplicas: 3 },
      expected: { kind: 'waiting', text: '2 of 2 ready, 1 stopping', unplaced: false },
    },
    {
      name: 'running a surplus replica',
      status: { totalReplicas: 3, updatedReplicas: 3, readyReplicas: 3 },
      expected: { kind: 'waiting', text: '2 of 2 ready, 1 extra', unplaced: false },
    },
    {
      name: 'rolling out',
      status: aRolloutStatus(RolloutStatus_Phase.IN_PROGRESS),
      expected: { kind: 'waiting', text: '2 of 2 ready', unplaced: false },
    },
    {
      name: 'rolling out, with a reason that only repeats the counts',
      status: aRolloutStatus(
        RolloutStatus_Phase.IN_PROGRESS,
        '1 of 2 replicas are ready, 1 not yet',
      ),
      expected: { kind: 'waiting', text: '2 of 2 ready', unplaced: false },
    },
    {
      name: 'rolling out, with another reason',
      status: aRolloutStatus(
        RolloutStatus_Phase.IN_PROGRESS,
        'step 1 of 2: 1 of 2 replicas are ready, 1 not yet',
      ),
      expected: {
        kind: 'waiting',
        text: '2 of 2 ready: step 1 of 2: 1 of 2 replicas are ready, 1 not yet',
        unplaced: false,
      },
    },
    {
      name: 'unplaced',
      status: aPendingStatus('no room'),
      expected: { kind: 'waiting', text: '1 of 2 ready: no room', unplaced: true },
    },
    {
      name: 'in a failed rollout',
      status: aRolloutStatus(RolloutStatus_Phase.FAILED, 'it crashes'),
      expected: { kind: 'failed', text: 'the rollout failed: it crashes', exitCode: 8 },
    },
    {
      name: 'in a paused rollout',
      status: aRolloutStatus(RolloutStatus_Phase.PAUSED),
      expected: { kind: 'failed', text: 'the rollout is paused', exitCode: 8 },
    },
    {
      name: 'in a rolled back rollout',
      status: aRolloutStatus(RolloutStatus_Phase.ROLLED_BACK),
      expected: { kind: 'failed', text: 'the rollout was rolled back', exitCode: 8 },
    },
    {
      name: 'waiting for a promotion',
      status: {
        rollout: create(RolloutStatusSchema, {
          phase: RolloutStatus_Phase.PAUSED,
          waitsForPromotion: true,
          reason: 'step 1 of 2',
        }),
      },
      expected: { kind: 'done', text: 'waits for a promotion: step 1 of 2' },
    },
    {
      name: 'waiting for a promotion and paused by a user',
      status: {
        rollout: create(RolloutStatusSchema, {
          phase: RolloutStatus_Phase.PAUSED,
          waitsForPromotion: true,
          pausedByUser: true,
        }),
      },
      expected: { kind: 'failed', text: 'the rollout is paused', exitCode: 8 },
    },
    {
      name: 'in a failed rollout with a known cause',
      status: {
        rollout: create(RolloutStatusSchema, {
          phase: RolloutStatus_Phase.FAILED,
          reason: 'x',
          failure: FAILURE,
        }),
      },
      expected: {
        kind: 'failed',
        text: 'the rollout failed: new replicas failed 3 times',
        exitCode: 8,
      },
    },
    {
      name: 'in a retry after a failed rollout',
      status: {
        rollout: create(RolloutStatusSchema, {
          phase: RolloutStatus_Phase.IN_PROGRESS,
          version: 2,
          failure: FAILURE,
        }),
      },
      expected: { kind: 'waiting', text: '2 of 2 ready', unplaced: false },
    },
    {
      name: 'being rolled back',
      status: {
        rollout: create(RolloutStatusSchema, {
          phase: RolloutStatus_Phase.IN_PROGRESS,
          version: 3,
          failure: FAILURE,
        }),
      },
      expected: {
        kind: 'failed',
        text: 'the rollout failed and is being rolled back: new replicas failed 3 times',
        exitCode: 8,
      },
    },
    {
      name: 'a failed job',
      status: { phase: WorkloadStatus_Phase.FAILED },
      expected: { kind: 'failed', text: 'it failed', exitCode: 8 },
    },
    {
      name: 'being deleted',
      status: { phase: WorkloadStatus_Phase.TERMINATING },
      expected: { kind: 'failed', text: 'it is being deleted', exitCode: 4 },
    },
    {
      name: 'a succeeded job',
      expected: { kind: 'done', text: '2 of 2 succeeded' },
      status: {
        phase: WorkloadStatus_Phase.SUCCEEDED,
        totalReplicas: 0,
        readyReplicas: 0,
        updatedReplicas: 0,
        succeededReplicas: 2,
      },
    },
    {
      name: 'a job with one succeeded and one ready replica',
      expected: { kind: 'done', text: '1 of 2 ready, 1 succeeded' },
      status: { totalReplicas: 1, readyReplicas: 1, updatedReplicas: 1, succeededReplicas: 1 },
    },
    {
      name: 'scaled to 0',
      status: { desiredReplicas: 0, totalReplicas: 0, readyReplicas: 0, updatedReplicas: 0 },
      expected: { kind: 'done', text: '0 of 0 ready' },
    },
  ])('returns $expected.kind for a workload that is $name', ({ status, expected }) => {
    expect(judge(status)).toEqual(expected);
  });
});

describe('judgeWorkload during the pause of a blue/green rollout', () => {
  it.each([
    {
      name: 'is done when all traffic goes to a complete new set',
      activeVersion: 2,
      expected: {
        kind: 'done',
        text: '2 of 2 ready; the earlier version is kept for 10m (--pause-duration)',
      },
    },
    {
      name: 'waits before the switch',
      activeVersion: 1,
      expected: { kind: 'waiting', text: '2 of 2 ready, 2 stopping', unplaced: false },
    },
    {
      name: 'waits for a replica of the new set',
      activeVersion: 2,
      readyReplicas: 1,
      expected: { kind: 'waiting', text: '1 of 2 ready, 2 stopping', unplaced: false },
    },
  ])('$name', ({ activeVersion, readyReplicas = 2, expected }) => {
    const rollout = create(RolloutStatusSchema, {
      phase: RolloutStatus_Phase.IN_PROGRESS,
      strategy: Rollout_Strategy.BLUE_GREEN,
    });
    const workload = aWorkload({
      status: { version: 2, activeVersion, totalReplicas: 4, readyReplicas, rollout },
    });
    if (workload.spec !== undefined)
      workload.spec.rollout = create(RolloutSchema, { pauseDuration: { seconds: 600n } });
    expect(judgeWorkload(workload, 3n)).toEqual(expected);
  });
});

describe('judgeWorkload with a rollback', () => {
  /** Creates a workload whose version 2 has failed and is replaced by version 3. */
  const aRollback = (phase: RolloutStatus_Phase) =>
    aWorkload({
      status: {
        version: 3,
        rollout: create(RolloutStatusSchema, { phase, version: 3, failure: FAILURE }),
      },
    });

  it('does not report a failure for a change after the failed version', () => {
    expect(judgeWorkload(aRollback(RolloutStatus_Phase.ROLLED_BACK), 3n, 3)).toEqual({
      kind: 'done',
      text: '2 of 2 ready',
    });
    expect(judgeWorkload(aRollback(RolloutStatus_Phase.IN_PROGRESS), 3n, 3)).toMatchObject({
      kind: 'waiting',
    });
  });

  it('reports a failure for the change whose version was rolled back', () => {
    expect(judgeWorkload(aRollback(RolloutStatus_Phase.ROLLED_BACK), 3n, 2)).toMatchObject({
      kind: 'failed',
      exitCode: 8,
    });
  });
});

/** A workload with one of two replicas ready. */
const halfReady = aWorkload({ status: { readyReplicas: 1 } });
const scale = ['scale', 'web', '2', '--wait'];

describe('option --wait', () => {
  it('prints each state once, and ends when all replicas are ready', async () => {
    const coordinator = {
      scaleWorkload: () => aWorkload(),
      watchWorkloads: createWatch(halfReady, 'synced', halfReady, aWorkload()),
    };
    expect(await runCli(scale, { coordinator })).toMatchObject({
      exitCode: 0,
      stderr: '',
      stdout:
        'workload default/web: scaled to 2\nworkload default/web: 1 of 2 ready\nworkload default/web: 2 of 2 ready\n',
    });
  });

  it.each([
    ['workload', 'create', 'web', '--image', 'x', '--wait'],
    ['workload', 'update', 'web', '--image', 'x', '--wait'],
    ['rollout', 'resume', 'web', '--wait'],
    ['rollout', 'promote', 'web', '--wait'],
    ['rollout', 'undo', 'web', '--wait'],
    ['rollout', 'restart', 'web', '--wait'],
  ])('waits until all replicas are ready with %s %s', async (...argv) => {
    const coordinator = {
      createWorkload: () => halfReady,
      updateWorkload: () => halfReady,
      resumeRollout: () => halfReady,
      promoteRollout: () => halfReady,
      undoRollout: () => halfReady,
      restartRollout: () => halfReady,
      watchWorkloads: createWatch(halfReady, aWorkload()),
    };
    const { exitCode, stdout } = await runCli(argv, { coordinator });
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(/workload default\/web: 2 of 2 ready\n$/);
  });

  it('prints a line for each additional ready replica, and none for counts that fluctuate', async () => {
    const anUnreadyState = (updated: number) => {
      const state = aRollout({}, { updated });
      if (state.status !== undefined) state.status.readyReplicas -= 1;
      return state;
    };
    const done = aWorkload({
      status: { rollout: create(RolloutStatusSchema, { phase: RolloutStatus_Phase.COMPLETED }) },
    });
    const states = [
      aRollout(),
      anUnreadyState(1),
      aRollout(),
      anUnreadyState(1),
      aRollout({}, { updated: 2 }),
      anUnreadyState(2),
      done,
    ];
    const coordinator = {
      scaleWorkload: () => aWorkload(),
      watchWorkloads: createWatch(...states),
    };
    expect((await runCli(scale, { coordinator })).stdout).toBe(
      [
        'scaled to 2',
        '4 of 4 ready, 1 updated, 3 old',
        '4 of 4 ready, 2 updated, 2 old',
        '2 of 2 ready',
      ]
        .map((line) => `workload default/web: ${line}\n`)
        .join(''),
    );
  });

  it('ends and prints the promote command when the rollout waits for a promotion', async () => {
    const waits = aRollout({
      phase: RolloutStatus_Phase.PAUSED,
      waitsForPromotion: true,
      reason: 'step 1 of 2',
    });
    const coordinator = { scaleWorkload: () => aWorkload(), watchWorkloads: createWatch(waits) };
    expect(await runCli(scale, { coordinator })).toMatchObject({
      exitCode: 0,
      stdout:
        'workload default/web: scaled to 2\nworkload default/web: waits for a promotion: step 1 of 2\n',
      stderr: 'promote the rollout with: cloudlessctl rollout promote web\n',
    });
  });

  it('fails at once when a rollback starts, and prints the failing replica', async () => {
    const back = aRollout({ version: 3, failure: FAILURE });
    const coordinator = { scaleWorkload: () => aWorkload(), watchWorkloads: createWatch(back) };
    expect(await runCli(scale, { coordinator })).toMatchObject({
      exitCode: 8,
      stderr: [
        'cloudlessctl: workload default/web: the rollout failed and is being rolled back: new replicas failed 3 times',
        'failing replica: 00000000000000aa-9 on node2, exit code 1',
        'last lines of 00000000000000aa-9:',
        '  starting',
        '  no such file: config.json',
        '',
      ].join('\n'),
    });
  });

  it('redraws a bar and the result on a terminal', async () => {
    const coordinator = {
      scaleWorkload: () => aWorkload(),
      watchWorkloads: createWatch(halfReady, aWorkload()),
    };
    const { stdout, exitCode } = await runCli(scale, {
      coordinator,
      isTTY: true,
      env: { NO_COLOR: '1' },
    });
    expect(exitCode).toBe(0);
    expect(stdout).toContain('ready  [####################....................] 1 of 2');
    expect(stdout).toContain('workload default/web: 2 of 2 ready (0s)\n');
    expect(stdout).toContain('\u001b[');
  });

  it('prints the progress on stderr with -o json', async () => {
    const coordinator = {
      scaleWorkload: () => halfReady,
      watchWorkloads: createWatch(halfReady, aWorkload()),
    };
    const { stdout, stderr } = await runCli([...scale, '-o', 'json'], { coordinator });
    expect(JSON.parse(stdout)).toMatchObject({ status: { readyReplicas: 2 } });
    expect(stderr).toContain('workload default/web: 1 of 2 ready\n');
  });

  it('fails at once when the rollout fails, and prints the last log lines of the failing replica', async () => {
    const failing = aWorkload({
      status: {
        ...aRolloutStatus(RolloutStatus_Phase.FAILED, '3 new replicas failed'),
        replicas: [
          create(ReplicaStatusSchema, {
            id: 'a-7',
            version: 1,
            phase: ReplicaStatus_Phase.FAILED,
            nodeId: 'n1',
          }),
        ],
      },
    });
    const coordinator = {
      scaleWorkload: () => aWorkload(),
      watchWorkloads: createWatch(failing),
      streamLogs: async function* () {
        yield create(LogEntrySchema, { sequence: 1n, line: 'no such file: config.json' });
      },
    };
    const { exitCode, stderr } = await runCli(scale, { coordinator });
    expect(exitCode).toBe(8);
    expect(stderr).toBe(
      'cloudlessctl: workload default/web: the rollout failed: 3 new replicas failed\nlast lines of a-7:\n  no such file: config.json\n',
    );
  });

  const runUntilTimeout = async (state: Workload, scaled = aWorkload()): Promise<CliResult> => {
    const clock = new ManualClock(NOW_MS);
    let seen = false;
    const running = runCli([...scale, '--timeout', '30s'], {
      clock,
      coordinator: { scaleWorkload: () => scaled, watchWorkloads: createWatch(state) },
      onStdout: (text) => {
        if (/ready|stopping/.test(text)) seen = true;
      },
    });
    while (!seen) await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(30_000);
    return running;
  };

  it('exits with 6 when --timeout expires', async () => {
    expect(await runUntilTimeout(halfReady)).toMatchObject({
      exitCode: 6,
      stderr: 'cloudlessctl: workload default/web did not become ready within 30s: 1 of 2 ready\n',
    });
  });

  it('says that replicas still stop when --timeout expires after a scaling to 0', async () => {
    const reason = '2 replicas still stopping';
    const stopping = aWorkload({ status: { desiredReplicas: 0, readyReplicas: 0, reason } });
    const scaled = aWorkload({ spec: { replicas: 0 } });
    expect(await runUntilTimeout(stopping, scaled)).toMatchObject({
      exitCode: 6,
      stderr:
        'cloudlessctl: workload default/web did not stop within 30s: 2 replicas still stopping\n',
    });
  });

  it('exits with 7 when --timeout expires while replicas have no node', async () => {
    expect(
      await runUntilTimeout(aWorkload({ status: aPendingStatus('no node has 4000m cpu') ?? {} })),
    ).toMatchObject({
      exitCode: 7,
      stderr:
        'cloudlessctl: workload default/web did not become ready within 30s: 1 of 2 ready: no node has 4000m cpu\n',
    });
  });

  it.each([
    { when: 'breaks', states: [halfReady, 'lost', 'lost', aWorkload()] as const },
    { when: 'breaks right after the change', states: ['lost', aWorkload()] as const },
  ])('reconnects when the connection $when', async ({ states }) => {
    const clock = new ManualClock(NOW_MS);
    const running = runCli(scale, {
      clock,
      coordinator: { scaleWorkload: () => aWorkload(), watchWorkloads: createWatch(...states) },
    });
    let ended = false;
    void running.then(() => (ended = true));
    while (!ended) {
      await new Promise((resolve) => setImmediate(resolve));
      if (clock.pendingTimers > 1) await clock.advance(1000);
    }
    const { exitCode, stderr } = await running;
    expect(exitCode).toBe(0);
    expect(stderr).toBe(
      'connection to the coordinator lost ([unavailable] no leader), reconnecting\n',
    );
  });

  it.each([
    {
      name: 'the watch shows the deletion',
      states: [aWorkload({ status: { totalReplicas: 1 } }), 'synced', 'gone'] as const,
      shown: ['1 replica left', 'deleted'],
    },
    { name: 'the workload is already deleted', states: ['synced'] as const, shown: ['deleted'] },
    {
      name: 'a new workload has the same name',
      states: [aWorkload({ uid: 'ff' }), 'synced'] as const,
      shown: ['deleted'],
    },
  ])('prints the progress of a deletion when $name', async ({ states, shown }) => {
    const coordinator = {
      deleteWorkload: () => aWorkload(),
      watchWorkloads: createWatch(...states),
    };
    const { exitCode, stdout } = await runCli(['delete', 'web', '--wait'], { coordinator });
    expect(exitCode).toBe(0);
    expect(stdout).toBe(shown.map((text) => `workload default/web: ${text}\n`).join(''));
  });

  it.each([
    {
      when: 'the watch reports them',
      deleted: aWorkload(),
      states: [aWorkload(), 'synced', { gone: [lostReplica] }] as const,
    },
    {
      when: 'only the response of the deletion reports them',
      deleted: aWorkload({ status: { replicas: [lostReplica] } }),
      states: ['synced'] as const,
    },
  ])(
    'names replicas that may still run on lost nodes after a deletion when $when',
    async ({ deleted, states }) => {
      const coordinator = { deleteWorkload: () => deleted, watchWorkloads: createWatch(...states) };
      const { exitCode, stdout, stderr } = await runCli(['delete', 'web', '--wait'], {
        coordinator,
      });
      expect(exitCode).toBe(0);
      expect(stdout).toMatch(/workload default\/web: deleted\n$/);
      expect(stderr).toBe(
        'workload default/web: replica aa-3 may still run on lost node n3; it is stopped when the node returns\n',
      );
      const json = await runCli(['delete', 'web', '--wait', '-o', 'json'], {
        coordinator: { deleteWorkload: () => deleted, watchWorkloads: createWatch(...states) },
      });
      const replicas = [{ id: 'aa-3', nodeId: 'n3', mayStillRun: true }];
      expect(JSON.parse(json.stdout)).toMatchObject({ workloads: [{ status: { replicas } }] });
    },
  );

  it.each([
    { replicas: 'all replicas', omittedReplicas: 0, omitReplicas: false },
    { replicas: 'no replicas of a very large workload', omittedReplicas: 1, omitReplicas: true },
  ])(
    'reads $replicas while a workload is being deleted',
    async ({ omittedReplicas, omitReplicas }) => {
      const requests: WatchWorkloadsRequest[] = [];
      const coordinator: FakeCoordinator = {
        deleteWorkload: () => aWorkload({ status: { omittedReplicas } }),
        watchWorkloads: async function* (request: WatchWorkloadsRequest) {
          requests.push(request);
          const { uid } = aWorkload();
          yield { kind: Kind.PUT, workload: { uid, status: { totalReplicas: 7 } } };
          yield { kind: Kind.DELETED, workload: { uid } };
        },
      };
      const { stdout } = await runCli(['delete', 'web', '--wait'], { coordinator });
      expect(stdout).toContain('workload default/web: 7 replicas left\n');
      expect(requests).toMatchObject([{ omitReplicas }]);
    },
  );

  it('gives the number of replicas that may still run and that the answer omits', async () => {
    const coordinator: FakeCoordinator = {
      deleteWorkload: () => aWorkload(),
      watchWorkloads: async function* () {
        const { uid } = aWorkload();
        const status = { replicas: [lostReplica], omittedReplicas: 5 };
        yield { kind: Kind.DELETED, workload: { uid, status } };
      },
    };
    const { stderr } = await runCli(['delete', 'web', '--wait'], { coordinator });
    expect(stderr).toBe(
      'workload default/web: replica aa-3 may still run on lost node n3; it is stopped when the node returns\n' +
        'workload default/web: 5 more replicas may still run on lost nodes, and are stopped when the nodes return\n',
    );
  });

  it('exits with 4 when the workload is deleted during the wait', async () => {
    const coordinator = {
      scaleWorkload: () => aWorkload(),
      watchWorkloads: createWatch(halfReady, 'gone'),
    };
    expect(await runCli(scale, { coordinator })).toMatchObject({
      exitCode: 4,
      stderr: 'cloudlessctl: workload default/web was deleted while waiting\n',
    });
  });
});
