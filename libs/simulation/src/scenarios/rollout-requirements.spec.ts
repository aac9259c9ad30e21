import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { create } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import {
  ReplicaStatus_Phase as Phase,
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  WorkloadSpecSchema,
} from '@cloudless/api';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';

/**
 * Sentences of CLD-REQ-023 that the controller and the API implement. The specs of libs/rollout
 * cover those of the planner alone.
 */

const ms = durationFromMs;
const ROLLING = { strategy: Strategy.ROLLING_UPDATE };
const RECREATE = { strategy: Strategy.RECREATE };
const BLUE_GREEN = { strategy: Strategy.BLUE_GREEN };
const crashReplica = (restarts: number) => ({
  ready: false,
  restarts,
  lastExitCode: 7,
  lastLines: ['starting', 'no such table'],
});

describe('CLD-REQ-023, limits:', () => {
  it.each([
    { name: 'the default of 3', rollout: {}, floor: 2 },
    { name: 'max_unavailable 2', rollout: { maxUnavailable: 2 }, floor: 1 },
    { name: 'an explicit 3', rollout: { minAvailable: 3 }, floor: 3 },
    {
      name: 'an explicit 3 with max_unavailable 2',
      rollout: { minAvailable: 3, maxUnavailable: 2 },
      floor: 3,
    },
    { name: 'more than the replica count', rollout: { minAvailable: 9 }, floor: 3 },
  ])(
    'a rolling update keeps min_available replicas ready at every moment: $name',
    async ({ rollout, floor }) => {
      const scenario = await RolloutScenario.start(rollout);
      await scenario.update();
      const { lowestReady, highestTotal } = await scenario.observe(6_000);
      expect(lowestReady).toBeGreaterThanOrEqual(floor);
      expect(highestTotal).toBe(4);
      expect(await scenario.status()).toMatchObject({
        minAvailable: floor,
        updatedReplicas: 3,
        readyReplicas: 3,
        totalReplicas: 3,
      });
    },
  );

  it('a rolling update surges first when no replica may be unavailable', async () => {
    const scenario = await RolloutScenario.start({ minAvailable: 3 });
    await scenario.update();
    expect(await scenario.observe(6_000)).toMatchObject({
      lowestReady: 3,
      highestTotal: 4,
      phases: ['IN_PROGRESS', 'COMPLETED'],
    });
  });

  it('an update is accepted for a workload whose replicas are unready, and may stop them all', async () => {
    const scenario = await RolloutScenario.start({ minAvailable: 3 });
    for (const replica of await scenario.replicas())
      scenario.changeReport(replica, { ready: false });
    await scenario.observe(100);
    await scenario.update();
    await scenario.observe(6_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
    expect(await scenario.replicas(1)).toEqual([]);
  });

  it.each([
    {
      call: 'create',
      attempt: (scenario: RolloutScenario) => scenario.create({ maxSurge: 0, minAvailable: 3 }),
    },
    {
      call: 'update',
      attempt: (scenario: RolloutScenario) =>
        scenario.update({ rollout: { maxSurge: 0, minAvailable: 3 } }),
    },
  ])(
    'a max_surge of 0 that leaves no possible move is rejected by $call',
    async ({ call, attempt }) => {
      const scenario = await RolloutScenario.start();
      if (call === 'create') {
        await scenario.call((client) => client.deleteWorkload({ name: 'web' }));
        await scenario.cluster.advance(3_000);
      }
      await expect(attempt(scenario)).rejects.toMatchObject({
        code: Code.InvalidArgument,
        rawMessage: expect.stringContaining(
          'max_surge 0 and min_available 3 of 3 leave no possible move',
        ) as unknown,
      });
    },
  );

  it('a limit that becomes impossible by scaling pauses the rollout with the reason and never goes below min_available', async () => {
    const limits = { maxSurge: 0, minAvailable: 2, minReadyDuration: ms(500) };
    const scenario = await RolloutScenario.start({ ...limits, progressDeadline: ms(3_000) });
    await scenario.observe(500);
    await scenario.update();
    await scenario.observe(300);
    await scenario.call((client) => client.scaleWorkload({ name: 'web', replicas: 2 }));
    const { lowestReady } = await scenario.observe(6_000);
    expect(lowestReady).toBe(2);
    expect(await scenario.rollout()).toMatchObject({
      phase: 'PAUSED',
      reason: 'max_surge 0 and min_available 2 of 2 leave no possible move',
    });
    await scenario.call((client) =>
      client.updateWorkload({ name: 'web', spec: { rollout: { maxSurge: 1 } } }),
    );
    await scenario.observe(5_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2, reason: '' });
  });

  it('the reason of a paused rollout names min_available as the user wrote it after a scale-down', async () => {
    const limits = { maxSurge: 0, minAvailable: 3, minReadyDuration: ms(500) };
    const scenario = await RolloutScenario.start(limits, { replicas: 5 });
    await scenario.observe(500);
    await scenario.update();
    await scenario.observe(300);
    for (const { replicas, reason } of [
      { replicas: 3, reason: 'min_available 3 of 3' },
      { replicas: 2, reason: 'min_available 3, which counts as 2 of 2,' },
    ]) {
      await scenario.call((client) => client.scaleWorkload({ name: 'web', replicas }));
      await scenario.observe(3_000);
      expect(await scenario.rollout()).toMatchObject({
        phase: 'PAUSED',
        reason: `max_surge 0 and ${reason} leave no possible move`,
      });
    }
  });

  it.each([
    { name: 'desired + max_surge (rolling)', rollout: { ...ROLLING, maxSurge: 2 }, highest: 5 },
    { name: '2 × desired (blue/green)', rollout: BLUE_GREEN, highest: 6 },
    { name: 'desired (recreate)', rollout: RECREATE, highest: 3 },
  ])('the ceiling of live replicas is $name', async ({ rollout, highest }) => {
    const scenario = await RolloutScenario.start(rollout);
    await scenario.update();
    expect((await scenario.observe(6_000)).highestTotal).toBe(highest);
    expect(await scenario.status()).toMatchObject({ updatedReplicas: 3, totalReplicas: 3 });
  });

  it('the ceiling of live replicas grows by 1 per replica that is being drained', async () => {
    const scenario = await RolloutScenario.start({ minAvailable: 3 });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(300);
    expect(await scenario.replicas()).toHaveLength(4);
    const [old] = await scenario.replicas(1);
    await scenario.call((client) => client.drainNode({ nodeId: old!.nodeId }));
    const drained = await scenario.observe(1_000);
    expect(drained).toMatchObject({ lowestReady: 3, highestTotal: 5 });
  });

  it('the ceiling of live replicas is max(old, desired) while scaling down', async () => {
    const scenario = await RolloutScenario.start({}, { replicas: 6 });
    scenario.holdStops(true);
    await scenario.update({ replicas: 2 });
    expect(await scenario.observe(2_000)).toMatchObject({ highestTotal: 6 });
    scenario.holdStops(false);
    await scenario.observe(3_000);
    expect(await scenario.status()).toMatchObject({ updatedReplicas: 2, totalReplicas: 2 });
  });

  it('the ceiling of live replicas does not count replicas on lost nodes', async () => {
    const scenario = await RolloutScenario.start({ maxSurge: 1, minAvailable: 3 });
    const [old] = await scenario.replicas(1);
    scenario.cluster.agents.get(old!.nodeId)!.sendsPings = false;
    await scenario.observe(6_000);
    expect(await scenario.status()).toMatchObject({ readyReplicas: 3, totalReplicas: 3 });
  });
});

describe('CLD-REQ-023, progress:', () => {
  it('old replicas are stopped only when new ones have been ready for min_ready_duration', async () => {
    const scenario = await RolloutScenario.start({ minReadyDuration: ms(2_000), minAvailable: 3 });
    await scenario.observe(2_000);
    await scenario.update();
    await scenario.observe(1_800);
    // The new replica is ready, but not for long enough.
    expect(await scenario.replicas(1)).toHaveLength(3);
    await scenario.observe(600);
    expect(await scenario.replicas(1)).toHaveLength(2);
    await scenario.observe(8_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED' });
  });

  it('the progress deadline counts from the newest progress', async () => {
    const scenario = await RolloutScenario.start({ progressDeadline: ms(3_000) });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(2_500);
    expect(await scenario.rollout()).toMatchObject({ phase: 'IN_PROGRESS' });
    for (const replica of await scenario.replicas(2))
      scenario.changeReport(replica, { ready: true });
    await scenario.observe(2_500); // The deadline counts from this progress.
    expect(await scenario.rollout()).toMatchObject({ phase: 'IN_PROGRESS' });
    await scenario.observe(1_500);
    expect(await scenario.rollout()).toMatchObject({ phase: 'FAILED' });
  });

  it('extra old replicas are deleted, not restarted', async () => {
    const scenario = await RolloutScenario.start({}, { replicas: 5 });
    const before = (await scenario.replicas()).map(({ id }) => id);
    const starts = (): number =>
      [...scenario.cluster.agents.values()].reduce((sum, { started }) => sum + started.length, 0);
    const started = starts();
    await scenario.call((client) => client.scaleWorkload({ name: 'web', replicas: 2 }));
    await scenario.observe(2_000);
    const after = (await scenario.replicas()).map(({ id }) => id);
    expect(after).toHaveLength(2);
    expect(before).toEqual(expect.arrayContaining(after));
    expect(starts()).toBe(started);
  });

  it.each([
    { from: 2, to: 5 },
    { from: 5, to: 2 },
    { from: 3, to: 0 },
  ])(
    'scale and update combined end at exactly the desired count: $from to $to',
    async ({ from, to }) => {
      const scenario = await RolloutScenario.start({}, { replicas: from });
      await scenario.update({ replicas: to });
      await scenario.observe(8_000);
      expect(await scenario.status()).toMatchObject({
        updatedReplicas: to,
        readyReplicas: to,
        totalReplicas: to,
      });
      expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED' });
    },
  );

  it('a new-version replica that restarts before its rollout completes counts as failed', async () => {
    const scenario = await RolloutScenario.start({ maxFailedNew: 2, minAvailable: 3 });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(300);
    const [newReplica] = await scenario.replicas(2);
    scenario.changeReport(newReplica!, crashReplica(1));
    await scenario.observe(300);
    expect((await scenario.rollout()).status).toMatchObject({ failedNew: 1, updated: 1 });
    expect(await scenario.replicas(1)).toHaveLength(3);
  });

  it('the rollout fails after max_failed_new failures, with the last log lines of the replica', async () => {
    const scenario = await RolloutScenario.start({ maxFailedNew: 2 });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(300);
    const [newReplica] = await scenario.replicas(2);
    scenario.changeReport(newReplica!, crashReplica(2));
    await scenario.observe(300);
    const { phase, failure, reason } = await scenario.rollout();
    expect(phase).toBe('FAILED');
    expect(failure).toMatchObject({
      replicaId: newReplica!.id,
      nodeId: newReplica!.nodeId,
      exitCode: 7,
      lastLines: ['starting', 'no such table'],
      version: 2,
    });
    expect(failure?.reason).toBe(reason);
    expect(reason).toContain('2 times');
    const { lowestReady } = await scenario.observe(3_000);
    expect(lowestReady).toBeGreaterThanOrEqual(2); // the remaining old replicas keep serving
  });

  it('restarts of old replicas do not count as failures', async () => {
    const scenario = await RolloutScenario.start({ maxFailedNew: 1 });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(300);
    const [old] = await scenario.replicas(1);
    scenario.changeReport(old!, { restarts: 5, lastExitCode: 1 });
    await scenario.observe(500);
    expect(await scenario.rollout()).toMatchObject({ phase: 'IN_PROGRESS' });
  });
});

describe('CLD-REQ-023, strategies:', () => {
  it('RECREATE stops all replicas, then starts all; its own stops ignore min_available', async () => {
    const scenario = await RolloutScenario.start({ ...RECREATE, minAvailable: 2 });
    await scenario.update();
    const { lowestReady, served, phases } = await scenario.observe(5_000);
    expect(lowestReady).toBe(0);
    expect(served).toEqual(['', '2']); // never both at the same time
    expect(phases.at(-1)).toBe('COMPLETED');
  });

  it('RECREATE with an explicit min_available above 0 returns a warning', async () => {
    const scenario = await RolloutScenario.start();
    const warningsOf = async (rollout: object): Promise<readonly string[]> => {
      const spec = create(WorkloadSpecSchema, { rollout });
      const plan = await scenario.call((client) => client.planWorkload({ name: 'web', spec }));
      return plan.warnings;
    };
    expect((await warningsOf({ ...RECREATE, minAvailable: 2 })).join()).toMatch(
      /min_available 2 cannot be kept/,
    );
    expect((await warningsOf(RECREATE)).join()).not.toContain('min_available');
  });

  it('BLUE_GREEN places the whole new set or nothing', async () => {
    const scenario = await RolloutScenario.start(
      { ...BLUE_GREEN },
      { resources: { requests: { cpuMillis: 2_000 } } },
      2,
    );
    await scenario.update(); // two nodes with 4 cores: only one of the three new replicas fits
    await scenario.observe(2_000);
    expect((await scenario.replicas(2)).map(({ nodeId }) => nodeId)).toEqual(['', '', '']);
    expect(await scenario.status()).toMatchObject({ activeVersion: 1, readyReplicas: 3 });
    await scenario.cluster.addNode('node-8');
    await scenario.observe(5_000);
    expect(await scenario.status()).toMatchObject({
      activeVersion: 2,
      readyReplicas: 3,
      totalReplicas: 3,
    });
  });

  it('BLUE_GREEN switches traffic in one step when the new set is ready', async () => {
    const scenario = await RolloutScenario.start(BLUE_GREEN);
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    expect((await scenario.observe(500)).served).toEqual(['1']);
    const [first, second, third] = await scenario.replicas(2);
    for (const replica of [first, second]) scenario.changeReport(replica!, { ready: true });
    expect((await scenario.observe(500)).served).toEqual(['1']);
    scenario.changeReport(third!, { ready: true });
    expect((await scenario.observe(1_000)).served.slice(-1)).toEqual(['2']);
    expect(await scenario.status()).toMatchObject({ activeVersion: 2 });
  });

  it('BLUE_GREEN keeps the old set for pause_duration, so that an undo serves it at once, and then removes it', async () => {
    const scenario = await RolloutScenario.start({ ...BLUE_GREEN, pauseDuration: ms(4_000) });
    await scenario.update();
    await scenario.observe(2_000);
    expect(await scenario.status()).toMatchObject({
      activeVersion: 2,
      readyReplicas: 3,
      totalReplicas: 6,
    });
    const oldIds = (await scenario.replicas(1)).map(({ id }) => id);
    await scenario.call((client) => client.undoRollout({ name: 'web' }));
    expect((await scenario.observe(200)).served.at(-1)).toBe('1');
    expect((await scenario.replicas(1)).map(({ id }) => id)).toEqual(oldIds);
    await scenario.observe(8_000);
    expect(await scenario.status()).toMatchObject({ activeVersion: 3, totalReplicas: 3 });
    await scenario.update();
    await scenario.observe(8_000);
    expect(await scenario.status()).toMatchObject({ activeVersion: 4, totalReplicas: 3 });
  });

  it('BLUE_GREEN with MANUAL promotion stays PAUSED until a user promotes', async () => {
    const scenario = await RolloutScenario.start({
      ...BLUE_GREEN,
      promotion: Promotion.MANUAL,
      progressDeadline: ms(1_000),
    });
    await scenario.update();
    expect((await scenario.observe(3_000)).served).toEqual(['1']);
    const { phase, status, reason } = await scenario.rollout();
    expect({ phase, waits: status.waitsForPromotion }).toEqual({ phase: 'PAUSED', waits: true });
    expect(reason).toContain('promot');
    await scenario.call((client) => client.promoteRollout({ name: 'web' }));
    expect((await scenario.observe(3_000)).served.at(-1)).toBe('2');
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED' });
  });

  it('a canary stops at a replica count or percentage for a wait or until a promotion', async () => {
    const steps = [
      { replicas: 1, wait: ms(2_000) },
      { percent: 50, promotion: Promotion.MANUAL },
    ];
    const scenario = await RolloutScenario.start(
      { steps, progressDeadline: ms(1_000) },
      { replicas: 4 },
    );
    const updated = async (): Promise<readonly [number, number]> => {
      const { status } = await scenario.rollout();
      return [status.step, status.updated];
    };
    await scenario.update();
    await scenario.observe(1_800);
    expect(await updated()).toEqual([1, 1]);
    await scenario.observe(2_500);
    expect(await updated()).toEqual([2, 2]);
    await scenario.observe(10_000);
    expect(await updated()).toEqual([2, 2]);
    expect(await scenario.rollout()).toMatchObject({ phase: 'PAUSED' });
    await scenario.call((client) => client.promoteRollout({ name: 'web' }));
    await scenario.observe(5_000);
    expect(await updated()).toEqual([0, 4]);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED' });
  });

  it('a canary step that is reached while a stop is unconfirmed still waits for a promotion', async () => {
    const scenario = await RolloutScenario.start({
      steps: [{ replicas: 1, promotion: Promotion.MANUAL }],
    });
    scenario.holdStops(true);
    await scenario.update();
    await scenario.observe(1_000);
    expect((await scenario.rollout()).status).toMatchObject({ waitsForPromotion: true, step: 1 });
    scenario.holdStops(false);
    await scenario.observe(500);
    expect(await scenario.rollout()).toMatchObject({
      phase: 'PAUSED',
      status: { waitsForPromotion: true, step: 1 },
    });
  });

  it('both versions serve in a rolling update', async () => {
    const scenario = await RolloutScenario.start({ minAvailable: 3 });
    await scenario.update();
    const { served, lowestReady } = await scenario.observe(5_000);
    expect(served).toEqual(['1', '1,2', '2']);
    expect(lowestReady).toBe(3); // of both versions
  });

  it('only the active version serves under BLUE_GREEN', async () => {
    const scenario = await RolloutScenario.start({ ...BLUE_GREEN, promotion: Promotion.MANUAL });
    await scenario.update();
    const { served } = await scenario.observe(2_000);
    expect(served).toEqual(['1']);
    expect(await scenario.status()).toMatchObject({ readyReplicas: 3, totalReplicas: 6 });
    const [old] = await scenario.replicas(1);
    scenario.changeReport(old!, { ready: false });
    await scenario.observe(40);
    expect(await scenario.status()).toMatchObject({ readyReplicas: 2 });
  });
});

describe('CLD-REQ-023, rollout life cycle:', () => {
  it('a rollout is asynchronous and reports its phase and its updated, ready and total counts', async () => {
    const scenario = await RolloutScenario.start({ minAvailable: 3 });
    scenario.setBehaviour(2, 'unready');
    const response = await scenario.update();
    expect(response.status).toMatchObject({ version: 2, updatedReplicas: 0, readyReplicas: 3 });
    expect((await scenario.observe(500)).phases.at(-1)).toBe('IN_PROGRESS');
    const { status } = await scenario.rollout();
    expect(status).toMatchObject({ updated: 1, ready: 3, total: 4, version: 2, fromVersion: 1 });
    scenario.setBehaviour(2, 'ready');
    for (const replica of await scenario.replicas(2))
      scenario.changeReport(replica, { ready: true });
    expect((await scenario.observe(4_000)).phases).toEqual(['IN_PROGRESS', 'COMPLETED']);
    expect((await scenario.rollout()).status).toMatchObject({ updated: 3, ready: 3, total: 3 });
  });

  it('a rollout fails at its progress deadline', async () => {
    const scenario = await RolloutScenario.start({ progressDeadline: ms(2_000) });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(3_000);
    const { phase, reason, failure } = await scenario.rollout();
    expect(phase).toBe('FAILED');
    expect(reason).toContain('no progress for 2s');
    expect(failure).toMatchObject({ version: 2 });
  });

  it('a rollout can be paused and resumed', async () => {
    const scenario = await RolloutScenario.start({ progressDeadline: ms(2_000) });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(300);
    await scenario.call((client) => client.pauseRollout({ name: 'web' }));
    scenario.setBehaviour(2, 'ready');
    for (const replica of await scenario.replicas(2))
      scenario.changeReport(replica, { ready: true });
    // The progress deadline passes, but does not count during the pause.
    const { phases } = await scenario.observe(5_000);
    expect(phases.at(-1)).toBe('PAUSED');
    expect((await scenario.rollout()).status).toMatchObject({ pausedByUser: true });
    expect((await scenario.rollout()).reason).toContain('paused by a user');
    expect((await scenario.replicas(1)).length).toBeGreaterThanOrEqual(2);
    await scenario.call((client) => client.resumeRollout({ name: 'web' }));
    await scenario.observe(4_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED' });
  });

  it('an undo restores the exact earlier template with the current count and rollout settings', async () => {
    const scenario = await RolloutScenario.start({}, { env: { COLOUR: 'blue' } });
    const first = (await scenario.call((client) => client.getWorkload({ name: 'web' }))).spec;
    await scenario.update({
      env: { COLOUR: 'green' },
      args: ['--new'],
      replicas: 4,
      rollout: { maxUnavailable: 2 },
    });
    await scenario.observe(5_000);
    const undone = await scenario.call((client) => client.undoRollout({ name: 'web' }));
    expect(undone.spec).toMatchObject({
      command: first?.command,
      env: { COLOUR: 'blue' },
      args: [],
      replicas: 4,
    });
    expect(undone.spec?.rollout?.maxUnavailable).toBe(2);
    await scenario.observe(5_000);
    const { versions, totalReplicas } = await scenario.status();
    expect(versions.at(-1)).toMatchObject({
      version: 3,
      sameAs: 1,
      cause: 'undo to version 1',
      active: true,
    });
    expect(totalReplicas).toBe(4);
  });

  it('the responses of undo and restart contain the changed workload', async () => {
    const scenario = await RolloutScenario.start({}, { env: { COLOUR: 'blue' } });
    await scenario.update({ env: { COLOUR: 'green' } });
    await scenario.observe(5_000);
    const undone = await scenario.call((client) =>
      client.undoRollout({ name: 'web', requestId: 'undo' }),
    );
    expect(undone).toMatchObject({
      generation: 3n,
      status: { version: 3, rollout: { version: 3 } },
    });
    expect(undone.status?.versions.at(-1)).toMatchObject({
      version: 3,
      sameAs: 1,
      cause: 'undo to version 1',
    });
    const again = await scenario.call((client) =>
      client.undoRollout({ name: 'web', requestId: 'undo' }),
    );
    expect(again.status?.versions).toEqual(undone.status?.versions);
    await scenario.observe(5_000);
    const restarted = await scenario.call((client) => client.restartRollout({ name: 'web' }));
    expect(restarted).toMatchObject({
      generation: 4n,
      status: { version: 4, rollout: { version: 4 } },
    });
    expect(restarted.status?.versions.at(-1)).toMatchObject({ version: 4, active: false });
  });

  it('a rollout can be undone half-way; replicas that were not replaced yet stay', async () => {
    const scenario = await RolloutScenario.start();
    const before = (await scenario.replicas()).map(({ id }) => id);
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(500);
    const left = (await scenario.replicas(1)).map(({ id }) => id);
    await scenario.call((client) => client.undoRollout({ name: 'web' }));
    await scenario.observe(3_000);
    expect((await scenario.replicas()).map(({ id }) => id)).toEqual(expect.arrayContaining(left));
    expect(left.length).toBeGreaterThanOrEqual(2);
    expect(before).toEqual(expect.arrayContaining(left));
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 3 });
  });

  it('a new update supersedes a running rollout', async () => {
    const scenario = await RolloutScenario.start({ progressDeadline: ms(2_000) });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(500);
    await scenario.update();
    await scenario.observe(5_000);
    expect(await scenario.rollout()).toMatchObject({
      phase: 'COMPLETED',
      version: 3,
      fromVersion: 1,
    });
    const starts = [...scenario.cluster.agents.values()].flatMap(({ started }) =>
      started.map(({ order }) => (order.case === 'start' ? order.value.version : 0)),
    );
    expect(starts.lastIndexOf(2)).toBeGreaterThan(-1);
    expect(await scenario.replicas(2)).toEqual([]);
  });

  it('on_failure PAUSE keeps the current state, and resuming tries again', async () => {
    const scenario = await RolloutScenario.start({ maxFailedNew: 1, onFailure: OnFailure.PAUSE });
    scenario.setBehaviour(2, 'fails');
    await scenario.update();
    await scenario.observe(3_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'FAILED', version: 2 });
    expect((await scenario.replicas(1)).filter(({ ready }) => ready)).toHaveLength(3);
    scenario.setBehaviour(2, 'ready');
    await scenario.observe(3_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'FAILED', version: 2 });
    await scenario.call((client) => client.resumeRollout({ name: 'web' }));
    await scenario.observe(5_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
  });

  it.each([
    { name: 'ROLLING_UPDATE', rollout: ROLLING },
    { name: 'RECREATE', rollout: RECREATE },
    { name: 'BLUE_GREEN', rollout: BLUE_GREEN },
  ])('on_failure ROLLBACK returns to the previous version: $name', async ({ rollout }) => {
    const scenario = await RolloutScenario.start(
      { ...rollout, maxFailedNew: 2, onFailure: OnFailure.ROLLBACK },
      { env: { COLOUR: 'blue' } },
    );
    scenario.setBehaviour(2, 'fails');
    await scenario.update({ env: { COLOUR: 'green' } });
    const { phases } = await scenario.observe(10_000);
    const { phase, version, failure } = await scenario.rollout();
    expect({ phase, version }).toEqual({ phase: 'ROLLED_BACK', version: 3 });
    // At most the COMPLETED from before the update.
    expect(phases.filter((seen) => seen === 'COMPLETED').length).toBeLessThanOrEqual(1);
    expect(failure).toMatchObject({ version: 2, exitCode: 1 });
    const { spec, status } = await scenario.call((client) => client.getWorkload({ name: 'web' }));
    expect(spec?.env).toEqual({ COLOUR: 'blue' });
    expect(status).toMatchObject({ readyReplicas: 3, totalReplicas: 3, activeVersion: 3 });
    expect(status?.versions.at(-1)).toMatchObject({ cause: 'rollback to version 1', sameAs: 1 });
  });

  it('a first deployment that fails is FAILED, continues to try, and becomes COMPLETED when ready', async () => {
    const scenario = await RolloutScenario.start(
      { maxFailedNew: 1, onFailure: OnFailure.ROLLBACK },
      { replicas: 0 },
    );
    await scenario.call((client) => client.deleteWorkload({ name: 'web' }));
    await scenario.cluster.advance(1_000);
    scenario.setBehaviour(1, 'fails');
    await scenario.create({ maxFailedNew: 1, onFailure: OnFailure.ROLLBACK });
    await scenario.observe(1_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'FAILED', version: 1, fromVersion: 0 });
    scenario.setBehaviour(1, 'ready');
    await scenario.observe(10_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 1 });
  });

  it('a restart replaces every replica with one of the same template', async () => {
    const scenario = await RolloutScenario.start();
    const before = (await scenario.replicas()).map(({ id }) => id);
    await scenario.call((client) => client.restartRollout({ name: 'web' }));
    await scenario.observe(5_000);
    const after = await scenario.replicas();
    expect(after).toHaveLength(3);
    expect(after.filter(({ id, phase }) => before.includes(id) || phase !== Phase.RUNNING)).toEqual(
      [],
    );
    expect((await scenario.status()).versions.at(-1)).toMatchObject({
      version: 2,
      cause: 'restart',
    });
  });
});
